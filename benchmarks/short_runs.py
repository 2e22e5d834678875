"""Count the rules of `recommended` that judge short runs, by framework.

python -m benchmarks.short_runs [--steps N ...] [--task NAME ...] [--root CHECKOUT]

Each task is a healthy script of tests/frameworks/unchanged under `stepwatch run`. With `--root`
another checkout judges, for example the one before a change.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.watched_run import ROOT, watch_script
from tests.frameworks.unchanged.tasks import NUM_BATCHES, SCRIPTS, TASKS, Task

__all__ = ["ShortRun", "main", "watch"]

_NOT_INSTALLED_HERE: Final = "mxnet"
"""Environment without the command `stepwatch`."""


@dataclass(frozen=True)
class ShortRun:
    """What the rules of `recommended` say about one run.

    Attributes:
        task: Name of the task.
        num_steps: Steps of the run.
        judged: Names of the rules that judged at least one step.
        found: Names of the rules that found an issue.
        reasons: Why each other rule judged nothing, by its name.
        num_bytes: Bytes of the session's folder.
    """

    task: str
    num_steps: int
    judged: tuple[str, ...]
    found: tuple[str, ...]
    reasons: dict[str, str]
    num_bytes: int


def watch(task: Task, num_steps: int, root: Path) -> ShortRun:
    """Train a task's script under `stepwatch run` and return what the rules say.

    Args:
        task: The task.
        num_steps: Steps of the run, a multiple of the steps of an epoch.
        root: Checkout whose code watches and judges.

    Raises:
        RuntimeError: The command gave no verdict.
    """
    epochs = str(-(-num_steps // NUM_BATCHES))
    run = watch_script(
        f".venv-{task.environment}",
        ["-W", "ignore", str(SCRIPTS / task.script), epochs],
        options=["--stop", "never"],
        variables=task.variables,
        root=root,
    )
    if run.failure:
        raise RuntimeError(f"{task.name}: {run.failure[-500:]}")
    name = "RuleConfigurationName"
    judged = tuple(each[name] for each in run.verdicts if each["Counts"]["evaluated"])
    others = (each for each in run.verdicts if each[name] not in judged)
    return ShortRun(
        task.name,
        num_steps,
        judged,
        tuple(each[name] for each in run.issues),
        {each[name]: each["StatusDetails"].rpartition(": ")[2] for each in others},
        run.num_bytes,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status: 1 if a rule finds an issue in a healthy run."""
    names = [task.name for task in TASKS if task.environment != _NOT_INSTALLED_HERE]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_runs", description=__doc__)
    parser.add_argument("--steps", nargs="+", type=int, default=[100], metavar="N")
    parser.add_argument("--task", nargs="+", choices=names, default=names)
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout that judges")
    parser.add_argument("--reasons", action="store_true", help="print why rules judge nothing")
    given = parser.parse_args(arguments)
    chosen = [task for task in TASKS if task.name in given.task]
    print(
        "| task | steps | rules that judge | findings | KiB stored |",
        "|---|---|---|---|---|",
        sep="\n",
    )
    has_found = False
    for num_steps in given.steps:
        runs = [watch(task, num_steps, given.root) for task in chosen]
        for run in runs:
            found = ", ".join(run.found) or "none"
            cells = [run.task, run.num_steps, len(run.judged), found, round(run.num_bytes / 1024)]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            for name, reason in run.reasons.items() if given.reasons else ():
                print(f"  {name}: {reason}", file=sys.stderr)
        median = statistics.median(len(run.judged) for run in runs)
        print(f"| median | {num_steps} | {median:g} | | |", flush=True)
        has_found = has_found or any(run.found for run in runs)
    return int(has_found)


if __name__ == "__main__":
    sys.exit(main())
