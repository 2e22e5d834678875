"""Ways to evaluate a rule that must give the same result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView

__all__ = [
    "MakeRule",
    "as_text",
    "assert_same_or_a_reason",
    "assert_same_verdict",
    "checked",
    "has_finding",
    "in_calls",
    "memory_sizes",
    "num_undecided",
    "states_file_by_file",
    "through_json",
]

MakeRule = Callable[[], Rule]
"""Returns the rule, as in a new process."""


def checked(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """Return outcomes after a check that none is a failure of the rule."""
    for outcome in outcomes:
        assert isinstance(outcome, (Passed, IssueFound, NotEvaluated)), outcome
        if isinstance(outcome, NotEvaluated):
            assert outcome.reason, "NotEvaluated must say why"
    return outcomes


def states_file_by_file(run: TrialBuilder, make_rule: MakeRule) -> list[EvaluationState]:
    """Return the state after each file of a run; the last one after its end."""
    states = [EvaluationState.initial()]
    for key in run.keys:
        files = load_step_files(run.store, [key])
        reconciler = Reconciler(run.store, make_rule(), run.run)
        states.append(reconciler.advance(through_json(states[-1]), files))
    reconciler = Reconciler(run.store, make_rule(), run.run)
    return [*states, reconciler.advance(through_json(states[-1]), (), ended=True)]


def in_calls(
    views: Sequence[Callable[[], StepView]], cuts: Sequence[int], make_rule: MakeRule
) -> tuple[list[str], str]:
    """Return the outcomes of steps, and the last memory, both as text.

    Args:
        views: Functions that create each step's view.
        cuts: Positions of the steps at which a new call begins.
        make_rule: Returns the rule; called for each call.
    """
    outcomes: list[str] = []
    state = EvaluationState.initial()
    for start, end in zip([0, *cuts], [*cuts, len(views)], strict=True):
        state = through_json(state)
        evaluation = Evaluation(make_rule(), state)
        # As text, because NaN does not equal NaN.
        outcomes += [
            repr(outcome) for outcome in checked([evaluation.feed(v()) for v in views[start:end]])
        ]
        state = replace(
            state,
            memory=evaluation.memory,
            evidence=evaluation.evidence,
            counts=evaluation.counts,
        )
    return outcomes, as_text(state)


def memory_sizes(views: Iterable[StepView], rule: Rule) -> list[int]:
    """Return the size of the memory as JSON after each step."""
    evaluation = Evaluation.fresh(rule)
    sizes = []
    for view in views:
        checked([evaluation.feed(view)])
        sizes.append(len(json.dumps(evaluation.memory)))
    return sizes


def num_undecided(views: Iterable[StepView], rule: Rule) -> int:
    """Return the number of steps before the first decision.

    Raises:
        AssertionError: The rule never decides.
    """
    evaluation = Evaluation.fresh(rule)
    for number, view in enumerate(views):
        evaluation.feed(view)
        if evaluation.counts.evaluated:
            return number
    counts = evaluation.counts
    raise AssertionError(f"the run has too few steps to decide: {counts.lacking or counts.reasons}")


def has_finding(views: Iterable[StepView], rule: Rule) -> bool:
    """Return whether a rule finds an issue at one of some steps."""
    evaluation = Evaluation.fresh(rule)
    return any(isinstance(evaluation.feed(view), IssueFound) for view in views)


def assert_same_or_a_reason(whole: Sequence[Outcome], less: Sequence[Outcome]) -> bool:
    """Assert that less data gives the same outcomes, or none with a reason.

    Returns:
        True if a step was not evaluated because of missing data.
    """
    is_missed = False
    for one, other in zip(whole, less, strict=True):
        if isinstance(other, NotEvaluated):
            is_missed |= not isinstance(one, NotEvaluated)
        else:
            assert type(one) is type(other), (one, other)
            if isinstance(one, IssueFound) and isinstance(other, IssueFound):
                assert _place(one) == _place(other)
    return is_missed


def assert_same_verdict(
    one: EvaluationState, other: EvaluationState, *, any_worker: bool = False
) -> None:
    """Assert that two evaluations have the same finding, except for rounding of sums.

    Args:
        one: The first final state.
        other: The second final state.
        any_worker: True if the finding may be on another worker.
    """
    assert one.status is other.status
    assert one.counts.evaluated == other.counts.evaluated
    if one.evidence is None or other.evidence is None:
        assert one.evidence is other.evidence
        return
    exactly = ["step", "mode", "measure", "first_step", "last_step", "count"]
    exactly += [] if any_worker else ["worker", "tensor"]
    for name in exactly:
        assert getattr(one.evidence, name) == getattr(other.evidence, name), name
    values = one.evidence.value, other.evidence.value
    assert np.isclose(*values, rtol=1e-9, atol=0, equal_nan=True), values


def through_json(state: EvaluationState) -> EvaluationState:
    """Return a state after a round trip through JSON."""
    return EvaluationState.from_json(json.loads(json.dumps(state.to_json())))


def as_text(state: EvaluationState) -> str:
    """Return a state as comparable text: NaN does not equal NaN."""
    return json.dumps(state.to_json(), sort_keys=True)


def _place(outcome: IssueFound) -> tuple[Any, ...]:
    evidence = outcome.evidence
    return evidence.step, evidence.mode, evidence.worker, evidence.tensor, evidence.measure
