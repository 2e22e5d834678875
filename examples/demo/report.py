"""What the rules said of the demo's jobs, as a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rule_runtime.engine.outcome import without_api_prefix

if TYPE_CHECKING:
    from infra.local import LocalTarget

__all__ = ["RuleResult", "print_table", "results_of"]

_FIRED_AT = re.compile(r"at step (\d+) resulted")
_END_MARKER = "training_job_end.ts"


@dataclass
class RuleResult:
    """One rule's verdict on one job; `latency_s` counts from the arrival of what decided it."""

    job: str
    rule: str
    status: str
    step: str
    detail: str
    latency_s: float | None


def results_of(job_name: str, target: LocalTarget) -> list[RuleResult]:
    """Return the verdicts that DescribeTrainingJob shows for a job."""
    prefix = f"{job_name}/debug-output/"
    arrivals = target.object_arrivals(prefix)
    results = []
    for status in target.rule_statuses(job_name):
        details = str(status.get("StatusDetails", "")).strip()
        fired = _FIRED_AT.search(details)
        step = fired[1] if fired else ""
        place = f"index/{int(step) // 1000:09d}/{int(step):012d}_" if step else _END_MARKER
        arrived = [time for key, time in arrivals.items() if key.startswith(prefix + place)]
        decided = status["LastModifiedTime"]
        final = status["RuleEvaluationStatus"] != "InProgress"
        latency_s = (decided - max(arrived)).total_seconds() if arrived and final else None
        results.append(
            RuleResult(
                job_name,
                status["RuleConfigurationName"],
                status["RuleEvaluationStatus"],
                step,
                without_api_prefix(details),
                latency_s,
            )
        )
    return results


def print_table(results: list[RuleResult], console: Console) -> None:
    """Print one line for each rule and job."""
    table = Table(title="verdicts", title_justify="left")
    for name in ("job", "rule", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("step", justify="right")
    table.add_column("verdict after", justify="right")
    table.add_column("detail", overflow="fold")
    for result in results:
        latency = "" if result.latency_s is None else f"{result.latency_s * 1000:.0f} ms"
        cells = (result.job, result.rule, result.status, result.step, latency, result.detail)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
