"""Runs scripts that have no hook: plainly, watched, and by `python -m hook_layer`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hook_layer.autopatch.command import STARTUP
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.child_processes import prepared_environment
from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial
from tests.hook_layer.autopatch.forked_runs import Done, ForkedRuns
from tests.python_path import PYTHON_PATH

__all__ = ["ROOT", "SCRIPTS", "TORCH", "XGBOOST", "ScriptRuns", "configuration", "run"]

SCRIPTS = Path(__file__).resolve().parent / "scripts"
ROOT = Path(__file__).resolve().parents[3]
TORCH = "torch_script.py"
XGBOOST = "xgboost_script.py"


def _inherited() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "CONFIG" not in key}


def run(
    command: Sequence[str | Path], cwd: Path = SCRIPTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**_inherited(), "PYTHONPATH": PYTHON_PATH, **environment},
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


class ScriptRuns:
    """Runs scripts in forks of processes that have imported PyTorch or XGBoost.

    Tests of the command itself start a process with `run`.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._of_frameworks: dict[str, ForkedRuns] = {}

    def plain(self, *command: str) -> Done:
        """Run a script as it is."""
        return self._run(command, _inherited())

    def watched(self, config: Path, *command: str) -> Done:
        """Run a script in a Python that is prepared as by `python -m hook_layer`."""
        source = HookSource.of(str(config), None)
        environment = {**_inherited(), "PYTHONPATH": PYTHON_PATH, **source.environment()}
        return self._run(command, {**environment, **prepared_environment(STARTUP, environment)})

    def trial(
        self, folder: Path, *command: str, collections: Sequence[str] = ()
    ) -> tuple[Trial, str]:
        """Run a script watched and plainly; return its trial and log if both print the same."""
        names = [{"CollectionName": name} for name in collections]
        done = self.watched(configuration(folder, folder / "tensors", *names), *command)
        assert done.returncode == 0, done.stderr
        assert done.stdout == self.plain(*command).stdout, done.stderr
        assert not re.search("Traceback|failed", done.stderr), done.stderr
        return create_trial(str(folder / "tensors")), done.stderr

    def close(self) -> None:
        for runs in self._of_frameworks.values():
            runs.close()

    def _run(self, command: Sequence[str], environment: dict[str, str]) -> Done:
        framework = "xgboost" if command[0] == XGBOOST else "torch._dynamo"
        if framework not in self._of_frameworks:
            scratch = self._scratch / framework
            scratch.mkdir()
            self._of_frameworks[framework] = ForkedRuns(framework, SCRIPTS, scratch)
        return self._of_frameworks[framework](command, environment)
