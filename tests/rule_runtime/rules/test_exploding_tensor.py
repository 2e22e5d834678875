from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract


class TestExplodingTensorContract(RuleContract):
    def make_rule(self) -> ExplodingTensor:
        return ExplodingTensor()


def outcomes_of(rule: ExplodingTensor, *steps: dict[str, object]) -> list[Outcome]:
    trial = TrialBuilder()
    for step, tensors in enumerate(steps):
        trial.step(step, tensors)
    return trial.outcomes(rule)


def test_fires_at_the_step_of_the_nan() -> None:
    """The original's test of 2019: a NaN at step 0 and one at step 2."""
    sick, healthy = {"a": [1.0, np.nan]}, {"a": [1.0, 2.0]}
    kinds = [type(outcome) for outcome in outcomes_of(ExplodingTensor(), sick, healthy, sick)]
    assert kinds == [IssueFound, Passed, IssueFound]


def test_the_largest_share_of_bad_elements_is_the_evidence() -> None:
    (outcome,) = outcomes_of(
        ExplodingTensor(), {"a": [1.0, 2.0, np.nan], "b": [np.inf, -np.inf, 0.0], "c": [1e300]}
    )
    assert isinstance(outcome, IssueFound)
    evidence = outcome.evidence
    assert (evidence.tensor, evidence.measure, evidence.value) == ("b", "inf", 2)
    assert evidence.sentence == "b: 2 of 3 elements are infinite"


def test_only_nan_lets_infinite_elements_pass() -> None:
    rule = ExplodingTensor(only_nan=True)
    passed, issue = outcomes_of(rule, {"a": [np.inf]}, {"a": [np.inf, np.nan]})
    assert isinstance(passed, Passed)
    assert isinstance(issue, IssueFound)
    assert (issue.evidence.measure, issue.evidence.value) == ("nan", 1)


def test_huge_finite_values_and_other_dtypes_never_fire() -> None:
    tensors = {"a": [1e308, -1e308], "i": np.arange(3), "b": np.array([True]), "e": np.empty(0)}
    (outcome,) = outcomes_of(ExplodingTensor(), tensors)
    assert isinstance(outcome, Passed)


def test_collections_and_regex_are_a_union() -> None:
    bad = [np.nan]
    rule = ExplodingTensor(collection_names=("weights",), tensor_regex=("^relu",))
    tensors = {"relu_1": [1.0], "fc.weight": [1.0], "input": bad}
    passed, issue, by_regex, none = outcomes_of(
        rule, tensors, {**tensors, "fc.weight": bad}, {**tensors, "relu_1": bad}, {"input": bad}
    )
    assert isinstance(passed, Passed)
    assert isinstance(issue, IssueFound)
    assert isinstance(by_regex, IssueFound)
    assert isinstance(none, NotEvaluated)


def test_parameters_may_be_strings() -> None:
    rule = create_rule(
        "ExplodingTensor",
        {"rule_to_invoke": "ExplodingTensor", "tensor_regex": "a{1,2}$,b", "only_nan": "True"},
    )
    assert rule == ExplodingTensor(tensor_regex=("a{1,2}$", "b"), only_nan=True)
    with pytest.raises(ParameterError, match=r"tensor_regex is \('\[',\), but must be a regular"):
        create_rule("ExplodingTensor", {"tensor_regex": "["})


@pytest.mark.parametrize(
    ("name", "value", "measure"),
    [("mean", np.nan, "nan"), ("abs_mean", np.inf, "inf"), ("max", np.inf, "inf")],
)
def test_a_stored_reduction_shows_a_bad_element(name: str, value: float, measure: str) -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {f"smdebug/reductions/{name}/w": np.float32([value])})
    trial.step(1, {f"smdebug/reductions/{name}/w": np.float32([1.0])})
    issue, passed = trial.outcomes(ExplodingTensor())
    assert isinstance(issue, IssueFound)
    assert (issue.evidence.tensor, issue.evidence.measure) == ("w", measure)
    assert isinstance(passed, Passed)


def test_the_tables_of_boosted_trees_have_nan_for_what_a_leaf_lacks() -> None:
    trees = {"trees/Split": [1.5, np.nan, np.nan], "metrics/train-rmse": [0.5]}
    assert outcomes_of(ExplodingTensor(), trees) == [Passed()]
    (chosen,) = outcomes_of(ExplodingTensor(tensor_regex="Split"), trees)
    assert isinstance(chosen, IssueFound)
    (other,) = outcomes_of(ExplodingTensor(), {**trees, "metrics/train-rmse": [np.nan]})
    assert isinstance(other, IssueFound)
    assert other.evidence.tensor == "metrics/train-rmse"
