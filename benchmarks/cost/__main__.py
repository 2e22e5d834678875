"""Print what a deployment costs, and check the model by a simulation.

python -m benchmarks.cost                    the bill of a workload, by the template's settings
python -m benchmarks.cost --simulate         the model's requests beside those of a simulated run
python -m benchmarks.cost --write | --check  the table in docs/explanation/cost.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

import infra  # noqa: F401 - first, for it says which interpreter has what the others import
from benchmarks.cost.bill import (
    DAYS_A_MONTH,
    Line,
    custom_rules_of_the_original,
    dollars,
    hour_of_training,
    idle_month,
    million_steps,
)
from benchmarks.cost.comparison import compared, print_comparison
from benchmarks.cost.deployment import Deployment
from benchmarks.cost.document import COMMAND, PAGE, document
from benchmarks.cost.jobs import Jobs
from benchmarks.cost.model import requests_of
from benchmarks.cost.simulation import simulate
from benchmarks.cost.workload import Timing, Workload
from infra.local.deployment import synthesise
from lambdas.contracts.prices import READ_ON, Prices
from tools.generated_text import bring_up_to_date

__all__ = ["main"]

_SIMULATED = {"rules": 10, "jobs": 1000, "steps": 4}
_TENSORS = 50
_DEFAULT = "(default: %(default)s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = _parser().parse_args(arguments)
    context = dict(assignment.partition("=")[::2] for assignment in options.context)
    deployment = Deployment.of_assembly(synthesise(context))
    if options.write or options.check:
        return _document(deployment, is_check=options.check)
    default = Workload()
    chosen = _SIMULATED if options.simulate else {"jobs": default.jobs, "steps": default.steps}
    rules = options.rules or chosen.get("rules", len(deployment.rules))
    deployment = deployment.with_rules(min(rules, len(deployment.rules)))
    workload = Workload(
        jobs=options.jobs or chosen["jobs"],
        workers=options.workers,
        steps=options.steps or chosen["steps"],
        saved_every_s=options.save_interval * options.step_s,
    )
    if options.simulate:
        _simulate(deployment, workload, seed=options.seed)
    else:
        _print_bill(deployment, workload, options.hours_a_day)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setting = "a setting of the deployment, such as stepwatch:batch_size=100"
    parser.add_argument(
        "-c", "--context", action="append", default=[], metavar="KEY=VALUE", help=setting
    )
    _add_workload(parser)
    parser.add_argument("--simulate", action="store_true", help="count the requests of a run")
    parser.add_argument(
        "--seed", type=int, default=0, help=f"chooses when simulated steps come {_DEFAULT}"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table in docs/explanation/cost.md"
    )
    parser.add_argument("--check", action="store_true", help="fail if that table is stale")
    return parser


def _add_workload(parser: argparse.ArgumentParser) -> None:
    number, usual = parser.add_argument, asdict(Workload())
    few = {f"few_{name}": value for name, value in _SIMULATED.items()}
    texts = {
        "--rules": "so many of the deployed rules (default: all; {few_rules} with --simulate)",
        "--jobs": "jobs that train at once (default: {jobs}; {few_jobs} with --simulate)",
        "--steps": "saved steps of a job (default: {steps}; {few_steps} with --simulate)",
    }
    for name, text in texts.items():
        number(name, type=int, help=text.format(**usual, **few))
    number("--workers", type=int, default=1, help=f"processes of a job that write {_DEFAULT}")
    number("--save-interval", type=int, default=100, help=f"steps from save to save {_DEFAULT}")
    number("--step-s", type=float, default=0.1, help=f"seconds that a step takes {_DEFAULT}")
    hours = f"hours that each job trains a day, for the bill of a month {_DEFAULT}"
    number("--hours-a-day", type=float, default=24.0, help=hours)


def _document(deployment: Deployment, *, is_check: bool) -> int:
    wanted = document(PAGE.read_text(encoding="utf-8"), deployment)
    name = f"docs/explanation/{PAGE.name}"
    return bring_up_to_date(PAGE, wanted, name=name, command=COMMAND, is_check=is_check)


def _print_bill(deployment: Deployment, workload: Workload, hours_a_day: float) -> None:
    prices, rules = Prices(), len(deployment.rules)
    print(f"{rules} rules, {workload}; prices of {READ_ON}, check them before you rely on them")
    lines = million_steps(deployment, workload, Timing(), prices)
    own = [line for line in lines if line.is_hook]
    ours = [line for line in lines if not line.is_hook]
    _print_lines("a million saved steps: the training jobs' own requests", own)
    _print_lines("a million saved steps: Stepwatch", ours)
    idle = idle_month(deployment, prices)
    _print_lines("an idle month", idle)
    hour = hour_of_training(deployment, workload, Timing(), prices)
    month = dollars(idle) + workload.jobs * hours_a_day * DAYS_A_MONTH * hour
    print("\nwhat training costs, the training jobs' own requests among it")
    print(f"  {'an hour of one job':<32}{hour:>27,.4f} $")
    print(f"  {f'a month, {hours_a_day:g} hours a day of each':<32}{month:>27,.2f} $")
    print("\nthe original's custom rules, a processing instance each (built-in rules are free)")
    hours = {"ml.t3.medium": prices.rule_hour_small, "ml.m5.xlarge": prices.rule_hour_usual}
    for name, hour in hours.items():
        cost = custom_rules_of_the_original(rules, workload, hour)
        print(f"  {name:<32}{cost:>27,.2f} $")


def _print_lines(title: str, lines: Sequence[Line]) -> None:
    print(f"\n{title}")
    for line in lines:
        print(f"  {line.what:<32}{line.count:>16,.2f}{line.dollars:>11,.2f} $")
    print(f"  {'together':<32}{dollars(lines):>27,.2f} $")


def _simulate(deployment: Deployment, workload: Workload, *, seed: int) -> None:
    counted = simulate(deployment, Jobs(workload, _TENSORS, seed), Timing())
    workload = replace(workload, item_bytes=round(counted.item_bytes) or workload.item_bytes)
    predicted = requests_of(deployment, workload, Timing(), on_aws=False)
    rows = list(compared(predicted, counted))
    print(f"{len(deployment.rules)} rules, {workload}; it took {counted.seconds:.0f} s")
    print_comparison(rows, workload.jobs * workload.steps * len(deployment.rules))
    units = {phase: dict(found) for phase, found in counted.units.items()}
    print(f"units of the table: {json.dumps(units)}")
    allowed = counted.job_steps_per_s(workload)
    print(f"job-steps a second before a key of the table is throttled: {allowed:,.0f}")
    print(f"bytes of logs: {json.dumps(counted.log_bytes)}")
    print(f"metrics: {json.dumps(counted.metrics)}; an item has {counted.item_bytes:.0f} bytes")


if __name__ == "__main__":
    sys.exit(main())
