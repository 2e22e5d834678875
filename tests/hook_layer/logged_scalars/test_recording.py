"""Scalars that a script logs without a hook of a framework."""

from __future__ import annotations

import subprocess
import sys
from math import isnan
from pathlib import Path

from rule_runtime import create_trial
from tests.python_path import PYTHON_PATH

SCRIPT = Path(__file__).resolve().parent / "logging_script.py"


def test_watch_logging_makes_a_run_and_changes_nothing_for_the_script(tmp_path: Path) -> None:
    plain, watched = (run(tmp_path / name, SCRIPT, "out") for name in ("plain", "watched"))
    assert (plain.returncode, watched.returncode) == (0, 0), watched.stderr
    assert plain.stdout == watched.stdout
    assert watched.stderr.count("stepwatch") <= 1  # one reason
    trial = create_trial(str(tmp_path / "watched" / "out"))
    assert len(trial.steps()) < 1100  # of 22,000
    names = set(trial.tensor_names(regex="^scalar/"))
    assert {"scalar/many", "scalar/last", *(f"scalar/thread-{n}" for n in range(4))} <= names
    assert not names & {"scalar/text", "scalar/histogram", "scalar/bad step"}
    last = trial.tensor("scalar/last")
    assert isnan(last.value(last.steps()[-1]).item())


def run(folder: Path, script: Path, out: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    variables = {
        "PYTHONPATH": PYTHON_PATH,
        "PATH": "/usr/bin:/bin",
    }
    if folder.name == "plain":
        variables["USE_SMDEBUG"] = "0"
    return subprocess.run(
        [sys.executable, str(script), out],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
