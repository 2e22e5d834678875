"""What the rules said of the demo's jobs, as a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

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
    stopped_at: str = ""


def results_of(job_name: str, target: LocalTarget) -> list[RuleResult]:
    """Return the verdicts that DescribeTrainingJob shows for a job."""
    arrivals = object_arrivals(job_name, target)
    results = []
    for status in target.rule_statuses(job_name):
        details = str(status.get("StatusDetails", "")).strip()
        fired = _FIRED_AT.search(details)
        step = fired[1] if fired else ""
        decided_by = f"/{int(step):012d}_" if step else _END_MARKER
        arrived = [
            time for key, time in arrivals.items() if decided_by in key and "/events/" not in key
        ]
        decided = status["LastModifiedTime"]
        final = status["RuleEvaluationStatus"] != "InProgress"
        latency_s = (decided - max(arrived)).total_seconds() if arrived and final else None
        results.append(
            RuleResult(
                job_name,
                status["RuleConfigurationName"],
                status["RuleEvaluationStatus"],
                step,
                details.partition("\n")[2] or details,
                latency_s,
            )
        )
    return results


def object_arrivals(job_name: str, target: LocalTarget) -> dict[str, datetime]:
    """Return when each object of a job arrived in the bucket."""
    pages = (
        target.client("s3")
        .get_paginator("list_objects_v2")
        .paginate(Bucket=target.tensor_bucket, Prefix=f"{job_name}/")
    )
    return {
        entry["Key"]: entry["LastModified"] for page in pages for entry in page.get("Contents", ())
    }


def print_table(results: list[RuleResult], console: Console) -> None:
    """Print one line for each rule and job."""
    table = Table(title="verdicts", title_justify="left")
    for name in ("job", "rule", "status", "step", "detail"):
        table.add_column(name, overflow="fold")
    table.add_column("after arrival", justify="right")
    for result in results:
        latency = "" if result.latency_s is None else f"{result.latency_s * 1000:.0f} ms"
        table.add_row(result.job, result.rule, result.status, result.step, result.detail, latency)
    console.print(table, highlight=False, markup=False)
