from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.all_zero import AllZero
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of

EVERYTHING = AllZero(tensor_regex=(".*",))


class TestAllZeroContract(RuleContract):
    def make_rule(self) -> Rule:
        return AllZero(tensor_regex=("^gradient",))


class TestAllZeroOfAShareContract(RuleContract):
    """The same rule where it has to count."""

    def make_rule(self) -> Rule:
        return AllZero(collection_names=("gradients",), threshold=60)


def outcome_of(rule: AllZero = EVERYTHING, *, save_values: bool = True, **tensors: Any) -> Outcome:
    trial = TrialBuilder()
    trial.step(7, tensors, save_values=save_values)
    (outcome,) = trial.outcomes(rule)
    return outcome


def half_zero(size: int = 100, num_zeros: int = 50) -> np.ndarray[Any, Any]:
    values = np.linspace(1, 2, size)
    values[:num_zeros] = 0
    return values


def test_a_tensor_of_zeros_is_found_and_told() -> None:
    evidence = evidence_of(outcome_of(a=np.ones(3), b=np.zeros((2, 3)), c=half_zero()))
    assert (evidence.tensor, evidence.measure, evidence.value) == ("b", "zero_percent", 100)
    assert evidence.sentence == "b: 100 % of 6 elements are zero, at least 100 %"


@pytest.mark.parametrize("num_others", [0, 1])
def test_one_element_that_is_not_zero_is_enough_by_default(num_others: int) -> None:
    values = np.zeros(1000, dtype=np.float32)
    values[:num_others] = 1e-30
    kind = Passed if num_others else IssueFound
    assert isinstance(outcome_of(a=values), kind)
    assert isinstance(outcome_of(a=values, save_values=False), kind)


@pytest.mark.parametrize(
    ("num_zeros", "kind"), [(49, Passed), (50, IssueFound), (51, IssueFound), (0, Passed)]
)
def test_the_threshold_itself_fires(num_zeros: int, kind: type) -> None:
    rule = AllZero(tensor_regex=(".*",), threshold=50)
    outcome = outcome_of(rule, a=half_zero(num_zeros=num_zeros))
    assert isinstance(outcome, kind)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.value == pytest.approx(num_zeros)


def test_a_share_of_zeros_needs_values() -> None:
    rule = AllZero(tensor_regex=(".*",), threshold=50)
    assert isinstance(outcome_of(rule, save_values=False, a=np.zeros(100)), IssueFound)
    outcome = outcome_of(rule, save_values=False, a=half_zero(num_zeros=60))
    assert outcome == NotEvaluated(
        "no selected tensor was saved with values: save their values (save_raw_tensor)"
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([np.nan, 0.0]), Passed),
        (np.array([np.inf, 0.0]), Passed),
        (np.empty((0, 3)), NotEvaluated),
        (np.array(["", ""]), NotEvaluated),
        (np.float32(0), IssueFound),
        (np.float32(1), Passed),
        (np.zeros(3, dtype=np.int64), IssueFound),
        (np.array([False, False]), IssueFound),
        (np.array([False, True]), Passed),
        (np.zeros(2, dtype=np.complex64), IssueFound),
        (np.array([1j, 0]), Passed),
    ],
)
@pytest.mark.parametrize("threshold", [100, 99])
def test_every_kind_of_tensor(value: Any, kind: type, threshold: float) -> None:
    rule = AllZero(tensor_regex=(".*",), threshold=threshold)
    assert isinstance(outcome_of(rule, a=value), kind)


def test_steps_of_every_mode_and_tensors_of_every_worker_are_judged() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker, value in enumerate(([1.0], [0.0])):
        trial.step(3, {"a": value}, mode=ModeKeys.EVAL, worker=f"worker_{worker}")
    evidence = evidence_of(*trial.outcomes(EVERYTHING))
    assert (evidence.worker, evidence.mode) == ("worker_1", "EVAL")


def test_files_without_statistics_are_judged_by_their_values() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"a": half_zero(num_zeros=80)})
    trial.step(1, {"a": np.zeros(4)})
    kinds = [type(o) for o in trial.outcomes(AllZero(tensor_regex=("a",), threshold=80))]
    assert kinds == [IssueFound, IssueFound]
