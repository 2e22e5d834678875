"""The table that a soak ends with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import quantiles

from rich.console import Console
from rich.table import Table

from tests.soak.checking import (
    EVENT,
    LOST,
    QUEUE,
    STOP,
    TRANSITION,
    VERDICT,
    WRITER,
    Findings,
    Problem,
)
from tests.soak.faults import Misfortune, ServiceCounts

MAX_SHOWN = 20


@dataclass(frozen=True)
class Course:
    """How a soak went.

    Attributes:
        num_files: Index files that were written.
        num_kills: How often the poller was killed.
        num_sweeps: How often the schedules ran.
        writing_s: Seconds for which jobs wrote.
        settling_s: Seconds from then until all was done.
        latencies_s: Seconds from a file to each verdict.
    """

    num_files: int
    num_kills: int
    num_sweeps: int
    writing_s: float
    settling_s: float
    latencies_s: tuple[float, ...] = ()


def print_report(
    console: Console, findings: Findings, course: Course, misfortune: Misfortune
) -> list[Problem]:
    """Print what happened and what became of it; return what is wrong.

    Args:
        console: Where to.
        findings: What was found at the end.
        course: How it went.
        misfortune: What was let fail.
    """
    problems = findings.problems()
    console.print(_happenings(findings, course))
    console.print(_faults(misfortune))
    console.print(_results(findings, problems))
    for problem in problems[:MAX_SHOWN]:
        console.print(f"{problem.kind}: {problem.where}: {problem.text}", markup=False)
    if len(problems) > MAX_SHOWN:
        console.print(f"... and {len(problems) - MAX_SHOWN} more")
    return problems


def _happenings(findings: Findings, course: Course) -> Table:
    table = Table("what happened", "", title="Soak")
    jobs = [stop.plan for stop in findings.stops]
    runs = [run for job in jobs for run in job.runs]
    rules = {found.rule for found in findings.outcomes}
    table.add_row("jobs, runs, rules", f"{len(jobs)}, {len(runs)}, {len(rules)}")
    table.add_row("writers, index files", f"{sum(j.num_workers for j in jobs)}, {course.num_files}")
    table.add_row("runs with a fault", str(sum(run.sickness is not None for run in runs)))
    table.add_row(
        "runs interrupted and resumed", str(sum(r.interrupted_after is not None for r in runs))
    )
    endings = Counter(job.ending.value for job in jobs)
    table.add_row("ends told by", ", ".join(f"{name} {n}" for name, n in sorted(endings.items())))
    table.add_row("kills of the poller", str(course.num_kills))
    table.add_row("sweeps", str(course.num_sweeps))
    times = f"{course.writing_s:.0f} s, {course.settling_s:.0f} s"
    table.add_row("writing, settling after it", times)
    if course.latencies_s:
        median, *_, p99 = quantiles(course.latencies_s, n=100)[49:]
        table.add_row("file to verdict, median, p99", f"{median:.1f} s, {p99:.1f} s")
    return table


def _faults(misfortune: Misfortune) -> Table:
    table = Table("requests of the functions", *misfortune.counts, title="Faults")
    counts = misfortune.counts.values()
    table.add_row("all", *(str(count.requests) for count in counts))
    table.add_row("failed", *(_share(count) for count in counts))
    table.add_row(
        "carried out and failed all the same",
        *(str(sum(n for f, n in c.faults.items() if f.is_carried_out)) for c in counts),
    )
    table.add_row("calls of which every attempt failed", *(str(c.lasting) for c in counts))
    return table


def _share(count: ServiceCounts) -> str:
    num_failed = sum(count.faults.values())
    return f"{num_failed} ({num_failed / max(count.requests, 1):.1%})"


def _results(findings: Findings, problems: list[Problem]) -> Table:
    table = Table("what must be", "checked", "wrong", title="Result")
    wrong = Counter(problem.kind for problem in problems)
    verdicts = Counter(found.verdict for found in findings.outcomes)
    reported = ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
    num_events = sum(len(found.announced) for found in findings.outcomes)
    num_stops = sum(len(stop.requests) for stop in findings.stops)
    num_evaluations = str(len(findings.outcomes))
    rows = [
        (VERDICT, "every verdict right: status, evidence, steps, memory", reported),
        (LOST, "none lost", num_evaluations),
        (TRANSITION, "one transition each, noted as announced", num_evaluations),
        (EVENT, "each announced on the bus", f"{num_events} events"),
        (STOP, "jobs with findings asked to stop, no others", f"{num_stops} stops"),
        (QUEUE, "queues of failures and dead letters empty", f"{len(findings.queues)} queues"),
        (WRITER, "all that was written is stored", f"{len(findings.stops)} jobs"),
    ]
    for kind, text, checked in rows:
        table.add_row(text, checked, str(wrong[kind]))
    return table
