"""Train programs with and without faults, evaluate rules on them, and print the detected faults.

python -m benchmarks.detection [--part PART] [--program NAME] [--fault NAME] [--seeds N] [--jobs N]

Runs are cached until their program or the hook changes, and verdicts until their rule changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detection.evaluated_runs import RUNS, evaluated_runs
from benchmarks.detection.packs import packs
from benchmarks.detection.parts import PARTS
from benchmarks.detection.plans import planned
from benchmarks.detection.report import tables
from rule_runtime.configuration.packs import PACKS

HEALTHY_SEEDS = 10
FAULT_SEEDS = 5


def main(given: Sequence[str] | None = None) -> None:
    """Train, evaluate and print.

    Args:
        given: The command line; None for that of this process.
    """
    arguments = _arguments(given)
    keys = {} if arguments.no_rules else {p: list(own) for p, own in packs(arguments.pack).items()}
    plans = [
        plan
        for part in arguments.part or PARTS
        for plan in planned(
            part,
            healthy_seeds=arguments.seeds or HEALTHY_SEEDS,
            fault_seeds=arguments.seeds or FAULT_SEEDS,
            only_programs=arguments.program,
            only_faults=arguments.fault,
        )
    ]
    if not plans:
        raise SystemExit("no run is of these programs with these faults")
    runs = evaluated_runs(
        plans,
        arguments.folder,
        jobs=arguments.jobs,
        only_packs=arguments.pack,
        evaluates=not arguments.no_rules,
    )
    for part in PARTS:
        own = [run for run in runs if run.plan.part == part]
        if own:
            print(f"=== {part}: {len(own)} runs ===\n")
            print("\n".join(table.as_text() for table in tables(own, keys)))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--program", action="append", help="only this program")
    parser.add_argument("--fault", action="append", help="only this fault, or `healthy`")
    parser.add_argument("--pack", choices=PACKS, action="append", help="default: all")
    parser.add_argument("--seeds", type=int, help="runs of each kind; default: 10 healthy, else 5")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=RUNS, help="cache of runs")
    parser.add_argument("--no-rules", action="store_true", help="train only: errors with faults")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
