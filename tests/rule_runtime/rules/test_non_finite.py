from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.non_finite import ExplodingTensor, NonFinite
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.outcomes import evidence_of, make_run

STEP = {  # in the order in which the hook captures
    "Net_a.weight": np.ones((2, 3)),
    "Net_a.bias": np.ones(2),
    "a_input_0": np.ones((4, 3)),
    "a_output_0": np.ones((4, 2)),
    "b_output_0": np.ones((4, 2)),
    "CrossEntropyLoss_output_0": np.float32(1.0),
    "gradient/Net_b.weight": np.ones((2, 3)),
    "gradient/Net_a.weight": np.ones((2, 3)),
}


class TestNonFiniteContract(RuleContract):
    def make_rule(self) -> Rule:
        return NonFinite()

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        # One tensor only: of several the first in the order of the index is reported.
        return {**tensors, "Net_fc.weight": np.array([1.0, np.nan])}


def outcome_of(bad: dict[str, object], **options: Any) -> Outcome:
    trial = TrialBuilder()
    trial.step(3, {**STEP, **bad}, **options)
    (outcome,) = trial.outcomes(NonFinite())
    return outcome


def first_of(*names: str, value: float = np.nan) -> str:
    evidence = evidence_of(outcome_of({name: np.array([1.0, value]) for name in names}))
    return evidence.tensor


def test_the_first_in_the_order_of_execution_is_named() -> None:
    order = list(STEP)
    for at, name in enumerate(order):
        assert first_of(*order[at:]) == name
    assert first_of("gradient/Net_a.weight", "gradient/Net_b.weight") == "gradient/Net_b.weight"


def test_a_loss_comes_before_gradients_and_after_outputs_whatever_the_index_says() -> None:
    trial = TrialBuilder()
    names = ("gradient/Net_b.weight", "CrossEntropyLoss_output_0", "b_output_0")
    trial.step(0, {name: [np.nan] for name in names})
    assert evidence_of(*trial.outcomes(NonFinite())).tensor == "b_output_0"


def test_the_evidence_counts_and_advises() -> None:
    evidence = evidence_of(outcome_of({"gradient/Net_b.weight": [1.0, np.nan, np.nan]}))
    assert (evidence.measure, evidence.value, evidence.threshold) == ("nan", 2.0, 0.0)
    assert evidence.sentence == "gradient/Net_b.weight: 2 of 3 elements are NaN"
    assert evidence.remedy.startswith("The forward pass is finite")
    evidence = evidence_of(
        outcome_of({"Net_a.bias": [np.inf], "CrossEntropyLoss_output_0": [np.nan]})
    )
    message = "Net_a.bias: 1 of 1 elements are infinite; it is the first of 2 such tensors"
    assert evidence.sentence == message


def test_the_remedy_is_that_of_the_group() -> None:
    evidence = evidence_of(outcome_of({"Net_a.bias": [np.nan, 1.0]}))
    assert evidence.remedy.startswith("An update before this step broke it")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_masks_may_be_infinite(value: float) -> None:
    assert isinstance(outcome_of({"a_input_0": [value, 0.0]}), Passed)
    assert isinstance(outcome_of({"a_output_0": [np.nan, 0.0]}), IssueFound)
    assert first_of("gradient/Net_a.weight", value=value) == "gradient/Net_a.weight"


def test_missing_values_of_inputs_and_targets_may_be_masked() -> None:
    missing = {"a_input_0": [np.nan, 0.0], "CrossEntropyLoss_input_1": [np.nan, 1.0]}
    assert isinstance(outcome_of(missing), Passed)
    lost = {**missing, "CrossEntropyLoss_output_0": np.float32(np.nan)}
    assert isinstance(outcome_of(lost), IssueFound)
    trial = TrialBuilder()
    trial.step(3, missing)
    assert isinstance(trial.outcomes(NonFinite())[0], IssueFound)  # no loss was saved


def test_finite_steps_pass_in_every_mode() -> None:
    assert isinstance(outcome_of({}), Passed)
    assert isinstance(outcome_of({}, mode=ModeKeys.EVAL), Passed)
    bad = outcome_of({"CrossEntropyLoss_output_0": np.float32(np.nan)}, mode=ModeKeys.EVAL)
    assert isinstance(bad, IssueFound)


def test_tables_and_labels_are_not_judged() -> None:
    (outcome,) = make_run({"trees/Split": [np.nan, 1.0], "labels": [np.nan]}).outcomes(NonFinite())
    assert isinstance(outcome, NotEvaluated)


def test_of_equal_places_the_first_worker_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker in ("worker_1", "worker_0"):
        trial.step(0, {"a_output_0": [np.nan]}, worker=worker)
    assert evidence_of(*trial.outcomes(NonFinite())).worker == "worker_0"


def skipping(num_steps: int, since: float | None) -> TrialBuilder:
    """Return a run whose gradients are not finite, with backward passes since the last update."""
    counted = {} if since is None else {"optimizer_steps/backward_passes_since": np.float32(since)}
    return make_run(
        *({**STEP, "gradient/Net_a.weight": [np.nan], **counted} for _ in range(num_steps))
    )


@pytest.mark.parametrize(
    ("since", "finds"), [(None, True), (0, True), (1, False), (19, False), (20, True)]
)
def test_gradients_that_no_optimizer_used_count_once_many_steps_were_skipped(
    since: float | None, finds: bool
) -> None:
    (outcome,) = skipping(1, since).outcomes(NonFinite())
    assert isinstance(outcome, IssueFound) is finds
    if since and finds:
        assert "20 steps in a row were skipped" in outcome.evidence.sentence


def test_one_of_several_losses_may_be_skipped() -> None:
    infinite = {"Loss_output_0": np.float32(np.inf)}
    assert isinstance(outcome_of(infinite), Passed)
    # Nothing says that it was skipped without gradients, or if no other loss is finite.
    trial = make_run({"CrossEntropyLoss_output_0": np.float32(1.0), **infinite})
    assert isinstance(trial.outcomes(NonFinite())[0], IssueFound)
    assert isinstance(outcome_of({"CrossEntropyLoss_output_0": np.float32(np.inf)}), IssueFound)


class TestExplodingTensorContract(RuleContract):
    def make_rule(self) -> ExplodingTensor:
        return ExplodingTensor()


def outcomes_of(rule: ExplodingTensor, *steps: dict[str, object]) -> list[Outcome]:
    return make_run(*steps).outcomes(rule)


def test_fires_at_the_step_of_the_nan() -> None:
    """The original's test of 2019: a NaN at step 0 and one at step 2."""
    sick, healthy = {"a": [1.0, np.nan]}, {"a": [1.0, 2.0]}
    kinds = [type(outcome) for outcome in outcomes_of(ExplodingTensor(), sick, healthy, sick)]
    assert kinds == [IssueFound, Passed, IssueFound]


def test_the_largest_share_of_bad_elements_is_the_evidence() -> None:
    evidence = evidence_of(
        *outcomes_of(
            ExplodingTensor(), {"a": [1.0, 2.0, np.nan], "b": [np.inf, -np.inf, 0.0], "c": [1e300]}
        )
    )
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
    evidence = evidence_of(
        *outcomes_of(ExplodingTensor(), {**trees, "metrics/train-rmse": [np.nan]})
    )
    assert evidence.tensor == "metrics/train-rmse"
