"""Runs scripts without a hook, by `python -m hook_layer` and as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial
from tests.hook_layer.autopatch.plain_runs import PlainRuns

__all__ = ["LIBRARIES", "ROOT", "SCRIPTS", "TORCH", "XGBOOST", "configuration", "run", "watched"]

SCRIPTS = Path(__file__).resolve().parent / "scripts"
ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
TORCH = "torch_script.py"
XGBOOST = "xgboost_script.py"


def run(
    command: Sequence[str | Path], cwd: Path = SCRIPTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if "CONFIG" not in key}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**inherited, "PYTHONPATH": LIBRARIES, **environment},
        check=False,
    )


def configuration(folder: Path, out_dir: Path, *collections: dict[str, object]) -> Path:
    file = folder / "stepwatch.json"
    content = {
        "TrainingJobName": "job",
        "DebugHookConfig": {
            "LocalPath": str(out_dir),
            "HookParameters": {"save_interval": "1", "stop_poll_s": "0.001"},
            "CollectionConfigurations": list(collections),
        },
    }
    file.write_text(json.dumps(content))
    return file


def watched(
    unhooked: PlainRuns, folder: Path, *command: str, collections: Sequence[str] = ()
) -> tuple[Trial, str]:
    """Return what a script saves, which prints the same without a hook, and the log."""
    names = [{"CollectionName": name} for name in collections]
    config = configuration(folder, folder / "tensors", *names)
    done = run(["-m", "hook_layer", "--config", config, *command])
    assert done.returncode == 0, done.stderr
    assert done.stdout == unhooked([*command]).stdout, done.stderr
    assert not re.search("Traceback|failed", done.stderr), done.stderr
    return create_trial(str(folder / "tensors")), done.stderr
