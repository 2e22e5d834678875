"""`stepwatch run`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rule_runtime import create_trial
from rule_runtime.cli.running import default_out_dir

SCRIPT = Path(__file__).resolve().parent / "scripts" / "sick_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
ENDLESS = "100000000"


def stepwatch(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(STEPWATCH), "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        check=False,
    )


def test_an_unchanged_script_is_stopped_and_judged_again_alike(tmp_path: Path) -> None:
    done = stepwatch(
        tmp_path,
        "--rule",
        "vanishing_gradient",
        "--rule",
        "loss_not_decreasing",
        "--out-dir",
        "out",
        "--output",
        "json",
        "--",
        sys.executable,
        SCRIPT,
        ENDLESS,
    )
    assert done.returncode == 1, done.stderr
    assert "trained to the end" not in done.stdout
    assert "the training is asked to stop because of vanishing_gradient" in done.stderr
    vanishing, _ = json.loads(done.stdout[done.stdout.index("[") :])
    assert vanishing["RuleEvaluationStatus"] == "IssuesFound"
    again = subprocess.run(
        [str(STEPWATCH), "evaluate", "out", "--rule", "vanishing_gradient", "--output", "json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert again.returncode == 1
    assert json.loads(again.stdout)[0]["Evidence"] == vanishing["Evidence"]


def test_who_observes_lets_it_train_to_the_end(tmp_path: Path) -> None:
    done = stepwatch(
        tmp_path, "--rule", "vanishing_gradient", "--observe", "--save-interval", "2", "--",
        SCRIPT, "9",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "trained to the end" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"runs/{folder.name}" in done.stdout.replace("\n", "")
    assert create_trial(str(folder)).steps() == [0, 2, 4, 6, 8]


def test_a_script_that_fails_by_itself_has_a_status_of_its_own(tmp_path: Path) -> None:
    done = stepwatch(tmp_path, "--rule", "exploding_tensor", "--", SCRIPT, "9", "fail")
    assert done.returncode == 4, done.stderr
    assert "the script ended with status 9" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "Vanishing", "--", "x.py"], "did you mean 'VanishingGradient'?"),
        (["--rule", "vanishing_gradient", "--", "torchrun", "x.py"], "autopatch on"),
        (["--pack", "mine", "--", "x.py"], "there is no pack 'mine'"),
    ],
)
def test_mistakes_end_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = stepwatch(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_folders_are_named_after_the_script() -> None:
    assert Path(default_out_dir(["python", "a/train.py", "--x"])).name.startswith("train-20")
    assert Path(default_out_dir(["python", "-m", "train"])).name.startswith("script-20")
