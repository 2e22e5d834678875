"""The commands of `examples/unchanged_script`, in their order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.examples.running import ROOT

SCRIPT = ROOT / "examples" / "unchanged_script" / "train_sick.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
ISSUE = 1


def stepwatch(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(STEPWATCH), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_is_stopped_and_judged_again_alike(tmp_path: Path) -> None:
    done = stepwatch(tmp_path, "run", "--rule=vanishing_gradient", "--", sys.executable, SCRIPT)
    assert done.returncode == ISSUE, done.stderr
    assert "epoch 0:" in done.stdout
    assert "epoch 19:" not in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    again = stepwatch(tmp_path, "evaluate", run, "--rule=vanishing_gradient", "--output=json")
    assert again.returncode == ISSUE, again.stderr
    (verdict,) = json.loads(again.stdout)
    assert verdict["RuleEvaluationStatus"] == "IssuesFound"
    assert verdict["Evidence"]["sentence"] in " ".join((done.stdout + done.stderr).split())
    assert stepwatch(tmp_path, "report", run).returncode == 0
