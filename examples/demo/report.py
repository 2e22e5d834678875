"""What the rules said of the demo's jobs, as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rule_runtime.cli.output import STATUS_COLOURS
from rule_runtime.cli.tables import Records
from rule_runtime.reporting.job_verdicts import JobVerdict

if TYPE_CHECKING:
    from infra.local import LocalTarget

__all__ = ["RuleResult", "print_table", "results_of"]

_FIRED_AT = re.compile(r"at step (\d+) resulted")
_END_MARKER = "training_job_end.ts"


@dataclass
class RuleResult:
    """One rule's verdict on one job.

    Attributes:
        job: Name of the job.
        verdict: The verdict.
        step: The step of the finding; empty without one.
        latency_s: Time from the arrival of the file that decided it to the verdict; None if
            unknown.
    """

    job: str
    verdict: JobVerdict
    step: str = ""
    latency_s: float | None = None


def results_of(job_name: str, target: LocalTarget) -> list[RuleResult]:
    """Return the verdicts that DescribeTrainingJob shows for a job."""
    prefix = f"{job_name}/debug-output/"
    arrivals = target.object_arrivals(prefix)
    results = []
    statuses = target.rule_statuses(job_name)
    for status in sorted(statuses, key=lambda one: str(one["RuleConfigurationName"])):
        fired = _FIRED_AT.search(str(status.get("StatusDetails", "")))
        step = fired[1] if fired else ""
        place = f"index/{int(step) // 1000:09d}/{int(step):012d}_" if step else _END_MARKER
        arrived = [time for key, time in arrivals.items() if key.startswith(prefix + place)]
        decided = status["LastModifiedTime"]
        final = status["RuleEvaluationStatus"] != "InProgress"
        latency_s = (decided - max(arrived)).total_seconds() if arrived and final else None
        results.append(RuleResult(job_name, JobVerdict.from_json(status), step, latency_s))
    return results


def print_table(results: Sequence[RuleResult], console: Console) -> None:
    """Print a table for each job."""
    for job, of_job in groupby(results, lambda result: result.job):
        table = Records(
            *("rule", "status", "step", "verdict after", "details"),
            whole=("status", "step", "verdict after"),
        )
        for result in of_job:
            verdict, latency = result.verdict, result.latency_s
            table.add_row(
                verdict.name,
                Text(verdict.displayed_status, style=STATUS_COLOURS.get(verdict.status, "")),
                result.step,
                "" if latency is None else f"{latency * 1000:.0f} ms",
                verdict.details,
            )
        console.print(f"\nverdicts on the {job} run", style="bold", highlight=False)
        console.print(table)
