"""Exports the findings of a session, each target in a process of its own.

A library that hangs, prints or fails changes nothing in the watched session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from enum import Enum
from importlib.util import find_spec
from typing import Final

from hook_layer.install_hint import install_hint
from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["Target", "chosen_targets", "export"]

_TIMEOUT_S: Final = 120.0
"""Seconds that a target gets: its library starts in 10 s, and a server may be slow."""
_ON_GITHUB: Final = "GITHUB_ACTIONS"


class Target(str, Enum):
    """Where findings are exported; each has an extra of its name, if it needs a library."""

    GITHUB = "github"
    WANDB = "wandb"
    MLFLOW = "mlflow"
    TENSORBOARD = "tensorboard"


_MODULES: Final = {
    Target.WANDB: "wandb",
    Target.MLFLOW: "mlflow",
    Target.TENSORBOARD: "tensorboardX",
}


def chosen_targets(targets: Iterable[Target]) -> list[Target]:
    """Return targets, and GitHub's in a workflow of GitHub Actions.

    Raises:
        ImportError: The library of one is not installed; names the extra.
    """
    by_default = [Target.GITHUB] * (os.environ.get(_ON_GITHUB) == "true")
    chosen = list(dict.fromkeys([*targets, *by_default]))
    for target in chosen:
        module = _MODULES.get(target)
        if module is not None and find_spec(module) is None:
            hint = install_hint(target.value)
            raise ImportError(f"--export {target.value} needs {module}: {hint}", name=module)
    return chosen


def export(target: Target, runs: Sequence[RunFindings], print_line: Callable[[str], None]) -> None:
    """Export the findings of runs; print what the target prints, or why it failed.

    Args:
        target: The target.
        runs: The runs.
        print_line: Prints a line.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our module
            [sys.executable, "-m", "rule_runtime.exporting", target.value],
            input=json.dumps([asdict(run) for run in runs]),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"it took longer than {_TIMEOUT_S:.0f} s"
        _print_failure(target, str(error) if isinstance(error, OSError) else reason, print_line)
        return
    for line in done.stdout.splitlines():
        print_line(line)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        _print_failure(target, lines[-1], print_line)


def _print_failure(target: Target, reason: str, print_line: Callable[[str], None]) -> None:
    print_line(f"stepwatch: the findings are not exported to {target.value}: {reason}")
