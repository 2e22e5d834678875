"""The table of costs in docs/explanation/cost.md, written from the model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.cost.bill import custom_rules_of_the_original, dollars, idle_month, million_steps
from benchmarks.cost.deployment import Deployment
from benchmarks.cost.workload import Timing, Workload
from lambdas.contracts.prices import READ_ON, Prices
from tools.generated_text import replaced

__all__ = ["BEGIN", "COMMAND", "END", "PAGE", "document", "table"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "cost.md"
COMMAND: Final = "python -m benchmarks.cost --write"
BEGIN: Final = f"<!-- costs: written by `{COMMAND}` -->"
END: Final = "<!-- /costs -->"
FEW: Final = (1, 10)
WORKERS: Final = (1, 8)
_WHOLE_DOLLARS: Final = 100


def table(deployment: Deployment, prices: Prices | None = None) -> str:
    """Return the table, with what it is computed for."""
    prices, load = prices or Prices(), Workload()
    total = len(deployment.rules)
    counts = [*(count for count in FEW if count < total), total]
    rows = [
        _row(deployment.with_rules(count), load, workers, prices)
        for count in counts
        for workers in WORKERS
    ]
    head = (
        "| rules | workers | training jobs' own requests | Stepwatch | in an idle month "
        "| custom rules of the original, `ml.t3.medium` | `ml.m5.xlarge` |"
    )
    return "\n".join([_introduction(load), "", head, "|" + "---:|" * 7, *rows])


def document(text: str, deployment: Deployment) -> str:
    """Return a text with the table between the marks.

    Raises:
        ValueError: The marks are missing.
    """
    return replaced(text, (BEGIN, END), table(deployment), name=PAGE.name)


def _introduction(load: Workload) -> str:
    return (
        f"Dollars for a million saved steps of {load.jobs} jobs that train at the same time, each "
        f"of {load.steps:,},\none every {load.saved_every_s:g} s; and for a month in which nothing "
        f"trains. List prices of us-east-1 of {READ_ON};\nwhat is free for small accounts is not "
        "taken off."
    )


def _row(deployment: Deployment, load: Workload, workers: int, prices: Prices) -> str:
    load = Workload(jobs=load.jobs, workers=workers)
    lines = million_steps(deployment, load, Timing(), prices)
    rules = len(deployment.rules)
    cells = (
        dollars(line for line in lines if line.is_hook),
        dollars(line for line in lines if not line.is_hook),
        dollars(idle_month(deployment, prices)),
        custom_rules_of_the_original(rules, load, prices.rule_hour_small),
        custom_rules_of_the_original(rules, load, prices.rule_hour_usual),
    )
    return f"| {rules} | {workers} | {' | '.join(map(_shown, cells))} |"


def _shown(amount: float) -> str:
    """Return an amount with as many digits as the model is good for."""
    return f"{amount:,.0f}" if amount >= _WHOLE_DOLLARS else f"{amount:.1f}"
