"""Is every verdict right, announced, and acted on as it should be? Compares, and asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lambdas.shared.stop_table import CONFIRMED, REQUESTED
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from tests.soak.expected import Expected
from tests.soak.plan import RULES, Ending, JobPlan, RunPlan

TRANSITIONS = 2
"""InProgress, then the verdict."""


@dataclass(frozen=True)
class Announcement:
    """A status event as a subscriber of the bus got it.

    Attributes:
        status: The status.
        evidence: The evidence in it, if there is one.
    """

    status: str
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one rule's evaluation of one run.

    Attributes:
        job: Name of the job.
        run: The run.
        rule: Name of the rule.
        expected: What one pass in order says; None where nothing of the run is stored.
        state: The stored state, None if there is none.
        announced: The status events about it.
    """

    job: str
    run: RunPlan
    rule: str
    expected: Expected | None
    state: EvaluationState | None
    announced: Sequence[Announcement] = ()

    @property
    def verdict(self) -> str:
        """The right verdict."""
        return self.expected.status.value if self.expected else RuleStatus.ERROR.value


@dataclass(frozen=True)
class StopOutcome:
    """What became of one job's end.

    Attributes:
        plan: The job.
        requests: The requests to stop it: run, rule and status.
        signalled_run: The run that `stop.json` names, None without one.
        platform_status: Its status on SageMaker, None elsewhere.
    """

    plan: JobPlan
    requests: Sequence[tuple[str, str, str]] = ()
    signalled_run: str | None = None
    platform_status: str | None = None


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        kind: What kind of thing; a line of the table.
        where: Which job, run and rule.
        text: What is wrong.
    """

    kind: str
    where: str
    text: str


VERDICT, LOST, TRANSITION, EVENT = "verdicts", "lost", "transitions", "announcements"
STOP, QUEUE, WRITER = "stops", "queues", "writers"


def problems_of_evaluation(found: Outcome) -> Iterator[Problem]:
    """Yield what is wrong with one rule's evaluation of one run.

    Args:
        found: What became of it.
    """
    where = f"{found.job} {found.run.run_id} {found.rule}"
    if found.expected is None:
        yield Problem(WRITER, where, "no index file of the run is stored")
        return
    if found.rule in RULES:  # of the others, one pass in order is all that is known
        for text in _unlike_the_plan(found.expected, found.run.findings.get(found.rule)):
            yield Problem(VERDICT, where, text)
    if found.state is None:
        yield Problem(LOST, where, "there is no state")
        return
    if not found.state.ended:
        fed = found.state.progress.fed_step
        yield Problem(LOST, where, f"it has not ended: {found.state.status.value} at step {fed}")
        return
    for text in _unlike_the_pass(found.state, found.expected):
        yield Problem(VERDICT, where, text)
    for text in _wrong_transitions(found.state):
        yield Problem(TRANSITION, where, text)
    for text in _wrong_announcements(found):
        yield Problem(EVENT, where, text)


def problems_of_stop(found: StopOutcome, outcomes: Sequence[Outcome]) -> Iterator[Problem]:
    """Yield what is wrong with how a job was asked to stop, or was not.

    Args:
        found: What became of it.
        outcomes: The evaluations of all of its runs.
    """
    plan, run = found.plan, found.plan.runs[-1]
    rules = {
        o.rule for o in outcomes if o.run is run and o.verdict == RuleStatus.ISSUES_FOUND.value
    }
    if not rules or plan.opts_out:
        if found.requests or found.signalled_run is not None:
            yield Problem(STOP, plan.name, f"it was asked to stop: {found.requests}")
        if found.platform_status not in (None, "Completed", _running(plan)):
            yield Problem(STOP, plan.name, f"SageMaker has it as {found.platform_status}")
        return
    if len(found.requests) != 1:
        yield Problem(STOP, plan.name, f"{len(found.requests)} requests to stop, not 1")
    for run_id, rule, status in found.requests:
        # Nobody tells that a silent job has ended.
        expected = REQUESTED if plan.ending is Ending.SILENCE else CONFIRMED
        if run_id != run.run_id or rule not in rules or status != expected:
            text = f"{rule} stops {run_id}: {status}; right: {rules} {run.run_id}: {expected}"
            yield Problem(STOP, plan.name, text)
    if found.signalled_run != run.run_id:
        yield Problem(STOP, plan.name, f"stop.json is for the run {found.signalled_run}")
    if plan.ending is Ending.SILENCE and found.platform_status not in (None, "Stopping"):
        yield Problem(STOP, plan.name, f"SageMaker has it as {found.platform_status}")


def problems_of_queues(left: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each queue of failures that is not empty.

    Args:
        left: Numbers of messages by queue.
    """
    for name, count in sorted(left.items()):
        if count:
            yield Problem(QUEUE, name, f"{count} messages")


@dataclass
class Findings:
    """All that was found at the end of a soak.

    Attributes:
        outcomes: The evaluations.
        stops: The jobs' ends.
        queues: Numbers of messages in the queues of failures.
        errors: What the writers could not do.
    """

    outcomes: Sequence[Outcome]
    stops: Sequence[StopOutcome]
    queues: Mapping[str, int]
    errors: Sequence[str] = field(default_factory=list)

    def problems(self) -> list[Problem]:
        """Return everything that is not as it should be."""
        problems = [p for found in self.outcomes for p in problems_of_evaluation(found)]
        for stop in self.stops:
            own = [found for found in self.outcomes if found.job == stop.plan.name]
            problems += problems_of_stop(stop, own)
        problems += problems_of_queues(self.queues)
        return problems + [Problem(WRITER, "", error) for error in self.errors]


def _running(plan: JobPlan) -> str | None:
    return "InProgress" if plan.ending is Ending.SILENCE else None


def _unlike_the_plan(expected: Expected, step: int | None) -> Iterator[str]:
    """Yield how one pass in order differs from what the files were made for."""
    evidence = expected.evidence
    found = None if evidence is None else evidence.step
    if found != step or expected.status is RuleStatus.ERROR:
        yield f"by construction a finding at step {step}, in order {expected.status.value} {found}"


def _unlike_the_pass(state: EvaluationState, expected: Expected) -> Iterator[str]:
    if state.status is not expected.status:
        yield f"{state.status.value}, right: {expected.status.value}"
    if state.evidence != expected.evidence:
        yield f"evidence {state.evidence}, right: {expected.evidence}"
    num_steps = (
        state.counts.evaluated,
        state.counts.not_evaluated,
        state.counts.not_applicable,
    )
    if num_steps != expected.num_steps:
        yield f"steps judged and not: {num_steps}, right: {expected.num_steps}"
    if state.memory != expected.memory:
        yield f"memory {state.memory}, right: {expected.memory}"


def _wrong_transitions(state: EvaluationState) -> Iterator[str]:
    if state.transition != TRANSITIONS:
        yield f"{state.transition} transitions were decided, right: {TRANSITIONS}"
    if not state.is_announced:
        yield f"transition {state.transition} is not noted as announced"


def _wrong_announcements(found: Outcome) -> Iterator[str]:
    statuses = {event.status for event in found.announced}
    if found.verdict not in statuses:
        yield f"{found.verdict} was never announced, only {sorted(statuses)}"
    wrong = statuses - {found.verdict, RuleStatus.IN_PROGRESS.value}
    if wrong:
        yield f"{sorted(wrong)} was announced of {found.verdict}"
    evidence = found.expected.evidence if found.expected else None
    if evidence is None:
        return
    right = {key: evidence.to_json()[key] for key in ("step", "tensor", "worker", "value")}
    for event in found.announced:
        reported = {key: (event.evidence or {}).get(key) for key in right}
        if event.status == found.verdict and reported != right:
            yield f"announced with {reported}, right: {right}"
