"""Count the rules of `recommended` that judge short runs, by framework.

python -m benchmarks.short_runs [--steps N ...] [--task NAME ...] [--root CHECKOUT]

Each task is a healthy script of tests/frameworks/unchanged under `stepwatch run`. With `--root`
another checkout judges, for example the one before a change.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.frameworks.unchanged.tasks import NUM_BATCHES, SCRIPTS, TASKS, Task

__all__ = ["ShortRun", "main", "watch"]

ROOT: Final = Path(__file__).resolve().parents[1]
_NOT_INSTALLED_HERE: Final = "mxnet"
"""Environment without the command `stepwatch`."""
_VERDICTS: Final = (0, 1)
"""Exit statuses of `stepwatch run` where rules judged: no issue, and an issue."""


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
    binaries = ROOT / f".venv-{task.environment}" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        verdicts, session = Path(folder) / "verdicts.json", Path(folder) / "run"
        command = [str(ROOT / ".venv/bin/stepwatch"), "run", "--output", "json", "--stop", "never"]
        command += ["--output-file", str(verdicts), "--out-dir", str(session), "--"]
        command += [str(binaries / "python"), "-W", "ignore", str(SCRIPTS / task.script)]
        done = subprocess.run(
            [*command, str(-(-num_steps // NUM_BATCHES))],
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                **task.variables,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(root),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
        )
        if done.returncode not in _VERDICTS:
            raise RuntimeError(f"{task.name}: exit status {done.returncode}: {done.stderr[-500:]}")
        entries = json.loads(verdicts.read_text(encoding="utf-8"))
        num_bytes = sum(path.stat().st_size for path in session.rglob("*") if path.is_file())
    name = "RuleConfigurationName"
    judged = tuple(each[name] for each in entries if each["Counts"]["evaluated"])
    return ShortRun(
        task.name,
        num_steps,
        judged,
        tuple(each[name] for each in entries if each["RuleEvaluationStatus"] == "IssuesFound"),
        {e[name]: e["StatusDetails"].rpartition(": ")[2] for e in entries if e[name] not in judged},
        num_bytes,
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
