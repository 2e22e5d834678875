"""`stepwatch run` with a script that was written for the original client and makes its hook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rule_runtime import create_trial
from tests.rule_runtime.processes import completed

SCRIPT = Path(__file__).resolve().parent / "scripts" / "smdebug_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
ALIASED = ("-m", "rule_runtime.smdebug_alias", str(SCRIPT))


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if "CONFIG" not in key}
    options = ["--rule", "exploding_tensor", "--save-interval", "2", "--out-dir", "out"]
    return completed(
        [STEPWATCH, "run", *options, "--", sys.executable, *command],
        cwd=folder,
        env=inherited | environment,
    )


@pytest.mark.parametrize("has_file", [False, True])
def test_its_hook_saves_where_the_rules_look(tmp_path: Path, *, has_file: bool) -> None:
    environment = {}
    if has_file:
        file = tmp_path / "hook.json"
        file.write_text('{"LocalPath": "elsewhere"}')
        environment = {"SMDEBUG_CONFIG_FILE_PATH": str(file)}
    done = run(tmp_path, *ALIASED, "6", **environment)
    assert done.returncode == 0, done.stderr
    assert "trained to the end" in done.stdout
    assert "NoIssuesFound" in done.stdout
    assert create_trial(str(tmp_path / "out")).steps() == [0, 2, 4]
    assert not (tmp_path / "elsewhere").exists()


def test_without_the_alias_it_is_told_how_to_have_it(tmp_path: Path) -> None:
    done = run(tmp_path, str(SCRIPT), "6")
    assert done.returncode == 4
    assert "No module named 'smdebug': to use the original client's names" in done.stderr
    assert "python -m rule_runtime.smdebug_alias train.py" in done.stderr


def test_a_hook_with_a_folder_of_its_own_is_judged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = SCRIPT.read_text(encoding="utf-8")
    script.write_text(text.replace("Hook.create_from_json_file()", "Hook('mine')"))
    done = run(tmp_path, *ALIASED[:-1], str(script), "3")
    assert done.returncode == 0, done.stderr
    assert "1 step evaluated" in done.stdout
    assert create_trial(str(tmp_path / "mine")).steps() == [0]
