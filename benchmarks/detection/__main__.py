"""Train programs with and without faults, let rules judge, and print who found what.

python -m benchmarks.detection [--part PART] [--program NAME] [--fault NAME] [--seeds N] [--jobs N]

Runs are kept in a folder and not trained again until their program or the hook changes; a rule
that judged a run is not asked again until its code or parameters change. With `--write`, the tables
of all that was judged go into a file for each part, and each part in short into RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detection.judged_runs import RUNS, judged_runs
from benchmarks.detection.packs import packs
from benchmarks.detection.parts import PARTS
from benchmarks.detection.report import Packs, as_json, summary, tables
from benchmarks.detection.results_file import overview, part_results
from benchmarks.detection.runs import Plan, planned
from benchmarks.detection.scores import Judged
from rule_runtime.configuration.packs import PACKS

HEALTHY_SEEDS = 10
FAULT_SEEDS = 5
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
OF_PARTS = RESULTS.parent / "results"


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Train, judge, tell.

    Args:
        arguments_given: The command line; None for that of this process.
    """
    arguments = _arguments(arguments_given)
    rules = packs(arguments.pack)
    keys = {} if arguments.no_rules else {pack: list(found) for pack, found in rules.items()}
    plans = _plans(arguments)
    if not plans:
        raise SystemExit("no run is of these programs with these faults")
    runs = judged_runs(
        plans,
        arguments.folder,
        jobs=arguments.jobs,
        only_packs=arguments.pack,
        again=arguments.again,
        is_judged=not arguments.no_rules,
    )
    if arguments.write:
        _write(runs, keys)
    if arguments.json:
        print(json.dumps(as_json(runs, keys), indent=1))
        return
    for part in PARTS:
        own = [run for run in runs if run.plan.part == part]
        if own:
            print(f"=== {part}: {len(own)} runs ===\n")
            shown = [summary(own, keys, "In short"), *tables(own, keys)]
            print("\n".join(table.as_text() for table in shown))


def _write(runs: Sequence[Judged], keys: Packs) -> None:
    OF_PARTS.mkdir(exist_ok=True)
    for part in dict.fromkeys(run.plan.part for run in runs):
        own = [run for run in runs if run.plan.part == part]
        (OF_PARTS / f"{part}.md").write_text(part_results(part, own, keys))
    RESULTS.write_text(overview(OF_PARTS))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--program", action="append", help="only this program")
    parser.add_argument("--fault", action="append", help="only this fault, or `healthy`")
    parser.add_argument("--pack", choices=PACKS, action="append", help="default: all")
    parser.add_argument("--seeds", type=int, help="runs of each kind; default: 10 healthy, else 5")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=RUNS, help="where runs are kept")
    parser.add_argument("--no-rules", action="store_true", help="train only: what faults do")
    parser.add_argument("--again", action="store_true", help="train and judge in any case")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md and results/")
    arguments = parser.parse_args(given)
    if arguments.write and any((arguments.program, arguments.fault, arguments.no_rules)):
        parser.error("results are of all runs of a part: no --program, --fault or --no-rules")
    return arguments


def _plans(arguments: argparse.Namespace) -> list[Plan]:
    return [
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


if __name__ == "__main__":
    main()
