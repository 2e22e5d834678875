"""Rules that are broken: their evaluation ends as Error with the line, and nothing else does."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.errors import RecordError
from hook_layer.storage.base import StorageError
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import (
    Evidence,
    Failed,
    IssueFound,
    NotEvaluated,
    Outcome,
    Passed,
    RuleStatus,
    status_details,
)
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.errors import TensorUnavailable, TensorUnavailableForStep
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.outcomes import make_run


class Broken(Rule):
    """Counts its steps, finds an issue at one, and fails at another."""

    fails_at: int = 3
    finds_at: int = -1
    kind: str = "KeyError"

    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["seen"] = np.int64(memory.get("seen", 0) + 1)
        if step.step == self.fails_at:
            memory["seen"] = 100
            return self._fail(memory)
        if step.step == self.finds_at:
            return IssueFound(_evidence(step))
        return Passed()

    def _fail(self, memory: Memory) -> Outcome:
        if self.kind == "KeyError":
            return dict[str, Outcome]()["a tensor"]
        if self.kind == "numpy":
            np.zeros(2) + np.zeros(3)  # it is raised in a file of numpy's
        if self.kind == "exit":
            raise SystemExit(3)
        if self.kind == "deep":
            memory["bad"] = memory
        if self.kind == "memory":
            memory["bad"] = np.zeros(3)
        if self.kind == "answer":
            return "fine"  # type: ignore[return-value]
        if self.kind in _RAISED:
            raise _RAISED[self.kind]
        return Passed()


_RAISED = {
    "unavailable": TensorUnavailableForStep("w", 3),
    "never saved": TensorUnavailable("w"),
    "damaged": RecordError("the checksum is wrong"),
    "storage": StorageError("the bucket is away"),
}


def _evidence(step: StepView) -> Evidence:
    return Evidence(
        step=step.step,
        mode=step.mode.name,
        worker="worker_0",
        tensor="w",
        measure="mean",
        value=1.0,
        threshold=0.0,
        sentence="w: too much",
        remedy="less",
    )


def run_of(num_steps: int = 6) -> TrialBuilder:
    return make_run(*({"w": [1.0, 2.0]} for _ in range(num_steps)))


def test_an_exception_ends_the_evaluation_with_the_line() -> None:
    outcomes = run_of().outcomes(Broken())
    assert outcomes[:3] == [Passed()] * 3
    failed = outcomes[3]
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("KeyError: 'a tensor' (test_failures.py, line ")
    assert failed.reason.endswith('return dict[str, Outcome]()["a tensor"])')
    state = run_of().evaluate(Broken())
    assert (state.status, state.ended, state.is_given_up) == (RuleStatus.ERROR, True, True)
    assert (state.counts.evaluated, state.counts.not_evaluated) == (3, 1)
    assert state.memory == {"seen": 3}, "as it was before the step"
    details = status_details("Mine", state)
    assert details.startswith("Evaluation of the rule Mine failed: KeyError: 'a tensor' (test_")
    assert details.endswith(", at step 3")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("numpy", "ValueError: operands could not be broadcast together"),
        ("exit", "SystemExit: 3 (test_failures.py, line "),
        ("memory", "Broken.check put a value into memory that cannot be stored: a memory holds"),
        (
            "deep",
            "Broken.check put a value into memory that cannot be stored: maximum recursion depth",
        ),
        ("answer", "Broken.check returned 'fine', but must return Passed(), IssueFound("),
    ],
)
def test_what_else_is_a_failure(kind: str, message: str) -> None:
    outcome = run_of().outcomes(Broken(kind=kind))[3]
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(message)
    if kind == "numpy":
        assert "test_failures.py" in outcome.reason, "the line of the rule, not one of numpy"
    assert run_of().evaluate(Broken(kind=kind)).memory == {"seen": 3}


@pytest.mark.parametrize("kind", ["unavailable", "never saved", "damaged"])
def test_data_that_is_not_there_is_no_failure(kind: str) -> None:
    state = run_of().evaluate(Broken(kind=kind))
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert (state.counts.evaluated, state.counts.not_evaluated) == (5, 1)
    assert state.counts.failure == ""
    assert isinstance(run_of().outcomes(Broken(kind=kind))[3], NotEvaluated)


def test_a_failing_storage_is_passed_on() -> None:
    with pytest.raises(StorageError, match="the bucket is away"):
        run_of().evaluate(Broken(kind="storage"))


def test_a_finding_outlives_the_failure() -> None:
    state = run_of().evaluate(Broken(finds_at=1))
    assert state.status is RuleStatus.ISSUES_FOUND
    assert state.evidence is not None
    assert (state.evidence.step, state.evidence.count) == (1, 1)
    assert state.counts.failure
    assert status_details("Mine", state).startswith("RuleEvaluationConditionMet: ")


def test_a_verdict_stays_when_the_second_look_fails() -> None:
    """A late file makes the run be judged again, and the rule fails in that second pass."""
    trial = TrialBuilder()
    keys = [trial.step(step, {"w": [1.0]}) for step in range(4)]
    reconciler = Reconciler(trial.store, Broken(fails_at=99), trial.run)
    state = reconciler.advance(
        EvaluationState.initial(), load_step_files(trial.store, keys), ended=True
    )
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    late = trial.step(2, {"w": [1.0]}, worker="worker_1")
    failing = Reconciler(trial.store, Broken(fails_at=2), trial.run)
    state = failing.advance(state, load_step_files(trial.store, [late]), ended=True)
    assert state.counts.failure
    assert state.status is RuleStatus.NO_ISSUES_FOUND


def test_no_step_is_shown_to_a_rule_that_failed() -> None:
    trial = run_of()
    state = trial.evaluate(Broken(fails_at=0))
    again = Reconciler(trial.store, Broken(), trial.run).advance(
        state, load_step_files(trial.store, trial.keys), ended=True
    )
    assert again is state
    evaluation = Evaluation(Broken(), state)
    assert evaluation.feed(trial.views()[1]) == Failed(state.counts.failure)
    evaluation.skip("gone")
    assert evaluation.counts == state.counts


@given(splits=st.lists(st.booleans(), min_size=6, max_size=6), finds_at=st.integers(-1, 5))
def test_any_split_of_the_steps_fails_alike(splits: list[bool], finds_at: int) -> None:
    trial = run_of()
    rule = Broken(fails_at=4, finds_at=finds_at)
    state = EvaluationState.initial()
    waiting: list[str] = []
    for key, is_call in zip(trial.keys, splits, strict=True):
        waiting.append(key)
        if is_call:
            files = load_step_files(trial.store, waiting)
            state = Reconciler(trial.store, rule, trial.run).advance(state, files)
            state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
            waiting = []
    reconciler = Reconciler(trial.store, rule, trial.run)
    state = reconciler.advance(state, load_step_files(trial.store, waiting), ended=True)
    whole = trial.evaluate(rule)
    assert (state.status, state.memory, state.evidence, state.counts, state.ended) == (
        *(whole.status, whole.memory, whole.evidence, whole.counts, whole.ended),
    )
