"""Scripts that no hook can capture: the log says why, once, by the 50th step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook_layer.autopatch.watched_scripts import SCRIPTS, ScriptRuns, configuration, run

SCRIPT = "uncaptured_script.py"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("plain tensors", "no torch module: the script trains plain tensors"),
        ("no optimizer", "no torch module: the script trains plain tensors"),
        ("frozen", "all parameters are frozen: none in the optimizer has requires_grad"),
    ],
)
def test_the_log_says_why(runs: ScriptRuns, tmp_path: Path, how: str, reason: str) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    plain = runs.plain(SCRIPT, how)
    watched = runs.watched(config, SCRIPT, how)
    assert (watched.returncode, watched.stdout) == (0, plain.stdout), watched.stderr
    assert watched.stderr.count(f"nothing is captured yet: {reason}") == 1, watched.stderr
    assert watched.stderr.index("captured yet") < watched.stderr.index("step 49")
    assert not (tmp_path / "tensors").exists()


@pytest.mark.parametrize("how", ["jit", "functions"])
def test_a_model_whose_calls_are_not_seen_is_watched_and_the_log_says_so(
    runs: ScriptRuns, tmp_path: Path, how: str
) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    plain = runs.plain(SCRIPT, how)
    watched = runs.watched(config, SCRIPT, how)
    assert (watched.returncode, watched.stdout) == (0, plain.stdout), watched.stderr
    assert watched.stderr.count("no call of a Linear is seen") == 1, watched.stderr
    assert (tmp_path / "tensors").exists()


def test_a_framework_without_a_hook_is_named_at_the_end(tmp_path: Path) -> None:
    package = tmp_path / "lightgbm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "boost.py").write_text("import lightgbm\n")
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-m", "hook_layer", "--config", config, "boost.py"], tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("nothing was captured: LightGBM has no hook") == 1, done.stderr


def test_a_script_that_fails_before_it_trains_is_said_to_have_failed(tmp_path: Path) -> None:
    (tmp_path / "lightgbm.py").touch()
    (tmp_path / "boost.py").write_text("import lightgbm\nopen('no such file')\n")
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-m", "hook_layer", "--config", config, "boost.py"], tmp_path)
    assert done.returncode == 1
    message = "nothing was captured: the script failed first: FileNotFoundError"
    assert done.stderr.count(message) == 1, done.stderr
    assert "has no hook" not in done.stderr


def test_nothing_is_said_of_a_script_that_is_watched(tmp_path: Path) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-m", "hook_layer", "--config", config, SCRIPTS / "torch_script.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "captured" not in done.stderr
