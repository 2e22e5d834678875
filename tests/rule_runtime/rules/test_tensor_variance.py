from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.tensor_variance import TensorVariance
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, letters
from tests.tables import table


class TestTensorVarianceContract(RuleContract):
    def make_rule(self) -> Rule:
        return TensorVariance(tensor_regex=("^gradient",), max_threshold=10, min_threshold=1e-6)


def outcome_of(tensors: dict[str, Any], **parameters: Any) -> Outcome:
    trial = TrialBuilder()
    trial.step(7, tensors, save_values=False)
    (outcome,) = trial.outcomes(TensorVariance(**{"tensor_regex": (".*",), **parameters}))
    return outcome


def of_variance(variance: float) -> np.ndarray[Any, Any]:
    return np.array([-1.0, 1.0]) * variance**0.5 + 3.0


@table(
    "value, thresholds, letter",
    {
        "at the maximum": (of_variance(4.0), (0.25, 4), "P"),
        "above the maximum": (of_variance(4.1), (0.25, 4), "!"),
        "at the minimum": (of_variance(0.25), (0.25, 4), "P"),
        "below the minimum": (of_variance(0.24), (0.25, 4), "!"),
        "between them": (of_variance(1.0), (0.25, 4), "P"),
        "without a maximum": (of_variance(1e9), (1, None), "P"),
        "without a minimum": (of_variance(1e-9), (None, 1), "P"),
        "constant": (np.ones(5), (1e-9, None), "!"),
        "constant, at a minimum of zero": (np.ones(5), (0, None), "P"),
        "above a maximum of zero": (np.array([1.0, 2.0]), (None, 0), "!"),
    },
)
def test_both_thresholds_are_strict(
    value: Any, thresholds: tuple[float | None, float | None], letter: str
) -> None:
    lowest, highest = thresholds
    outcome = outcome_of({"a": value}, min_threshold=lowest, max_threshold=highest)
    assert letters([outcome]) == letter


def test_the_tensor_farthest_beyond_a_threshold_is_the_evidence() -> None:
    tensors = {"a": of_variance(40.0), "b": of_variance(0.01), "c": of_variance(1.0)}
    evidence = evidence_of(outcome_of(tensors, max_threshold=10, min_threshold=1))
    assert evidence.tensor == "b"
    assert evidence.sentence == "b: the variance is 0.01, less than 1"
    evidence = evidence_of(outcome_of({"a": tensors["a"], "c": tensors["c"]}, max_threshold=10))
    assert evidence.sentence == "a: the variance is 40, more than 10"
    assert (evidence.measure, evidence.threshold) == ("variance", 10)


def test_variance_is_that_of_the_population() -> None:
    evidence = evidence_of(outcome_of({"a": [1.0, 2.0, 6.0]}, max_threshold=1))
    assert evidence.value == pytest.approx(np.var([1.0, 2.0, 6.0]))


@pytest.mark.parametrize(
    "value", [np.float32(1), np.empty((2, 0)), [np.nan, 1.0], [np.inf, -np.inf], ["a", "b"], [1j]]
)
def test_what_has_no_variance_is_not_judged(value: Any) -> None:
    assert isinstance(outcome_of({"a": value}, min_threshold=1, max_threshold=1), NotEvaluated)
    beside = {"a": value, "b": of_variance(1.0)}
    assert isinstance(outcome_of(beside, min_threshold=0.5), Passed)


def test_finite_elements_count_beside_nan() -> None:
    evidence = evidence_of(outcome_of({"a": [np.nan, 0.0, 10.0]}, max_threshold=1))
    assert evidence.value == pytest.approx(25)


def test_the_worst_of_several_workers_is_the_evidence() -> None:
    trial = TrialBuilder(num_workers=3)
    for worker, variance in enumerate([1.0, 30.0, 20.0]):
        trial.step(0, {"w": of_variance(variance)}, worker=f"worker_{worker}")
    evidence = evidence_of(*trial.outcomes(TensorVariance(tensor_regex=("w",), max_threshold=2)))
    assert evidence.worker == "worker_1"
