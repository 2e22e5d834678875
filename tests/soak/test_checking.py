"""What is right is taken for right, and each thing that can be wrong is told by its kind."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from hook_layer.storage.memory import MemoryStore
from lambdas.shared.stop_table import CONFIRMED, REQUESTED
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing import TrialBuilder
from tests.soak import checking
from tests.soak.checking import Announcement, Findings, Outcome, StopOutcome
from tests.soak.expected import Expected, expected_verdicts
from tests.soak.faults import Misfortune
from tests.soak.plan import RULES, Ending, JobPlan, RunPlan, drawn_jobs
from tests.soak.report import Course, print_report
from tests.soak.tensors import saved_arrays

RULE = "UnchangedTensor"


def one_job() -> JobPlan:
    """Return a small job of one worker, sick for the rule, that ends by its marker."""
    (job,) = drawn_jobs(0, num_jobs=1, span_s=10.0, files_per_s=1.0, rules=(RULE,))
    (run,) = job.runs
    sick = next(
        found.runs[-1].sickness
        for found in drawn_jobs(0, num_jobs=20, span_s=200.0, files_per_s=1.0, rules=(RULE,))
        if found.runs[-1].sickness
    )
    steps = tuple(replace(step, writers=frozenset({0}), lossy=frozenset()) for step in run.steps)
    run = replace(run, steps=steps, sickness=replace(sick, number=5, worker=0))
    return replace(
        job, num_workers=1, ending=Ending.MARKER, on_sagemaker=False, opts_out=False, runs=(run,)
    )


JOB = one_job()
RUN = JOB.runs[0]


def evaluated(run: RunPlan) -> tuple[EvaluationState, Expected]:
    """Return what the product says of a run, and what one pass in order does."""
    store = MemoryStore()
    trial = TrialBuilder(store, run=run.run_id)
    for step in run.steps:
        trial.step(step.step, saved_arrays(run, step, 0), mode=step.mode, mode_step=step.mode_step)
    rules = {RULE: RULES[RULE]}
    reconciler = Reconciler(store, create_rule(RULE, RULES[RULE]), run.run_id)
    state = reconciler.advance(EvaluationState.initial(), (), ended=True).announced()
    return state, expected_verdicts(store, rules, num_workers=1)[run.run_id, RULE]


STATE, EXPECTED = evaluated(RUN)


def right(**changes: Any) -> Outcome:
    """Return an evaluation that is as it should be, but for some changes."""
    evidence = EXPECTED.evidence.to_json() if EXPECTED.evidence else None
    events = (Announcement("InProgress"), Announcement("IssuesFound", evidence))
    return replace(Outcome(JOB.name, RUN, RULE, EXPECTED, STATE, events), **changes)


def kinds(outcome: Outcome) -> set[str]:
    return {problem.kind for problem in checking.problems_of_evaluation(outcome)}


def test_what_is_right_is_right() -> None:
    assert EXPECTED.status is RuleStatus.ISSUES_FOUND
    assert kinds(right()) == set()
    twice = right(announced=(*right().announced, right().announced[-1]))
    assert kinds(twice) == set()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"state": None}, checking.LOST),
        ({"state": replace(STATE, ended=False)}, checking.LOST),
        ({"state": replace(STATE, status=RuleStatus.NO_ISSUES_FOUND)}, checking.VERDICT),
        ({"state": replace(STATE, evidence=None)}, checking.VERDICT),
        ({"state": replace(STATE, memory={})}, checking.VERDICT),
        (
            {"state": replace(STATE, counts=replace(STATE.counts, evaluated=1))},
            checking.VERDICT,
        ),
        ({"run": replace(RUN, sickness=None)}, checking.VERDICT),
        ({"state": replace(STATE, transition=3, announced_transition=3)}, checking.TRANSITION),
        ({"state": replace(STATE, announced_transition=1)}, checking.TRANSITION),
        ({"announced": (Announcement("InProgress"),)}, checking.EVENT),
        ({"announced": (*right().announced, Announcement("NoIssuesFound"))}, checking.EVENT),
        ({"announced": (Announcement("IssuesFound", {"step": 1}),)}, checking.EVENT),
        ({"expected": None}, checking.WRITER),
    ],
)
def test_what_is_wrong_is_reported(changes: dict[str, Any], kind: str) -> None:
    assert kinds(right(**changes)) == {kind}


STOPPED = StopOutcome(JOB, [(RUN.run_id, RULE, CONFIRMED)], RUN.run_id)
HEALTHY = replace(EXPECTED, status=RuleStatus.NO_ISSUES_FOUND, evidence=None)
ON_SAGEMAKER = replace(JOB, on_sagemaker=True, ending=Ending.PLATFORM)
SILENT = replace(JOB, ending=Ending.SILENCE)


def stop_problems(found: StopOutcome, expected: Expected = EXPECTED) -> int:
    outcome = right(run=found.plan.runs[-1], expected=expected)
    return len(list(checking.problems_of_stop(found, [outcome])))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (STOPPED, EXPECTED),
        (replace(STOPPED, plan=ON_SAGEMAKER, platform_status="Stopped"), EXPECTED),
        (replace(STOPPED, plan=ON_SAGEMAKER, platform_status="Completed"), EXPECTED),
        (replace(STOPPED, plan=SILENT, requests=[(RUN.run_id, RULE, REQUESTED)]), EXPECTED),
        (StopOutcome(JOB), HEALTHY),
        (StopOutcome(ON_SAGEMAKER, platform_status="Completed"), HEALTHY),
        (StopOutcome(replace(JOB, opts_out=True)), EXPECTED),
    ],
)
def test_right_stops(found: StopOutcome, expected: Expected) -> None:
    assert not stop_problems(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (replace(STOPPED, requests=[]), EXPECTED),
        (replace(STOPPED, requests=[*STOPPED.requests] * 2), EXPECTED),
        (replace(STOPPED, requests=[("another", RULE, CONFIRMED)]), EXPECTED),
        (replace(STOPPED, requests=[(RUN.run_id, "another", CONFIRMED)]), EXPECTED),
        (replace(STOPPED, requests=[(RUN.run_id, RULE, REQUESTED)]), EXPECTED),
        (replace(STOPPED, signalled_run=None), EXPECTED),
        (STOPPED, HEALTHY),
        (StopOutcome(JOB, signalled_run=RUN.run_id), HEALTHY),
        (StopOutcome(ON_SAGEMAKER, platform_status="Stopped"), HEALTHY),
        (replace(STOPPED, plan=replace(JOB, opts_out=True)), EXPECTED),
    ],
)
def test_wrong_stops(found: StopOutcome, expected: Expected) -> None:
    assert stop_problems(found, expected)


def test_the_report_counts_what_is_wrong_and_says_it() -> None:
    findings = Findings(
        [right(), right(state=None)], [STOPPED], {"Letters": 2, "Failures": 0}, ["it broke"]
    )
    console = Console(file=io.StringIO(), width=110)
    course = Course(100, 7, 15, 300.0, 12.0)
    problems = print_report(console, findings, course, Misfortune(0, 0.05))
    assert [problem.kind for problem in problems] == [
        checking.LOST,
        checking.QUEUE,
        checking.WRITER,
    ]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Letters: 2 messages" in text
    assert "it broke" in text
    assert "kills of the poller" in text
