"""What tests of commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from rule_runtime.testing import TrialBuilder


def invoke(*arguments: object) -> tuple[int, str]:
    """Return exit status and output of a command."""
    result = CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def invoke_json(*arguments: object) -> tuple[int, Any]:
    """Return exit status and the decoded output of a command."""
    status, output = invoke(*arguments, "--output", "json")
    return status, json.loads(output)


def trial_in(folder: Path) -> TrialBuilder:
    """Return a trial that is written to a folder."""
    return TrialBuilder(LocalStore(folder))


def train(folder: Path, *, steps: int = 6, differs_from: int = 99, extra: str = "") -> None:
    """Store a run of two tensors, one of which differs from a step on; `extra` is a third."""
    trial = trial_in(folder)
    trial.collections(gradients=("gradient/a",))
    for step in range(steps):
        value = np.float32([step, 2.0 + (step >= differs_from)])
        tensors = {"gradient/a": value, "loss": np.float32([1 / (step + 1)])}
        trial.step(step, {**tensors, **({extra: value} if extra else {})})
    trial.end()
