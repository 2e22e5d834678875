from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import evidence_of, make_run, reason_of


class TestLabelDegenerateContract(RuleContract):
    def make_rule(self) -> Rule:
        return LabelDegenerate()

    def make_collections(self) -> dict[str, tuple[str, ...]]:
        return {"labels": ("^labels$",)}

    def make_tensors(self, step: int, worker: int) -> Tensors:
        labels = np.random.default_rng(step + worker).integers(0, 10, 64)
        return {**healthy_tensors(step, worker), "labels": labels}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "labels": np.full(64, 3)}


def outcomes_of(*labels: object, name: str = "labels", **beside: object) -> list[Outcome]:
    trial = make_run(
        *({name: value, **beside} for value in labels), collections={"labels": ("^labels$",)}
    )
    return trial.outcomes(LabelDegenerate())


def fires(outcomes: list[Outcome]) -> list[int]:
    return [at for at, outcome in enumerate(outcomes) if isinstance(outcome, IssueFound)]


def test_fires_once_enough_labels_are_all_the_same() -> None:
    outcomes = outcomes_of(*[np.full(64, 7)] * 20)
    assert fires(outcomes) == [19]
    assert evidence_of(outcomes[-1]).sentence == "labels: is 7 in all of 1280 rows so far"


@pytest.mark.parametrize(("size", "at"), [(25, [19]), (24, [])])
def test_the_number_of_labels_counts(size: int, at: list[int]) -> None:
    assert fires(outcomes_of(*[np.full(size, 7.0)] * 20)) == at


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize(("value", "first"), [(0, 78), (1, 78), (2, 19)])
def test_beside_the_class_0_or_1_others_may_be_rare(
    num_classes: int, value: int, first: int
) -> None:
    scores = {"CrossEntropyLoss_input_0": np.ones((64, num_classes))}
    labels = [np.full(64, value)] * 80
    outcomes = outcomes_of(*labels, name="CrossEntropyLoss_input_1", **scores)
    assert fires(outcomes)[0] == first  # 79 * 64 = 5,056 rows


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "needs 5000 rows, had 3840: all labels are equal so far"),
        (1, "needs 5000 rows, had 3840: all labels are equal so far"),
    ],
)
def test_equal_labels_that_may_be_rare_are_not_evaluated_yet(value: int, reason: str) -> None:
    trial = make_run(
        *({"labels": np.full(64, value)} for _ in range(60)), collections={"labels": ("^labels$",)}
    )
    state = trial.evaluate(LabelDegenerate())
    assert (state.needs_more, state.reason) == (True, reason)


def test_all_training_labels_decide_at_once() -> None:
    """As boosted trees save them, once, beside the labels of validation."""
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step in range(12):
        labels = {"training_data/Label": np.arange(600) % 2} if step == 0 else {}
        trial.step(step, {**labels, "labels": np.arange(64) % 2, "loss": [0.5]})
    assert trial.evaluate(LabelDegenerate()).counts.evaluated == 12


def test_two_values_are_enough_for_ever() -> None:
    assert not fires(outcomes_of(np.zeros(100), np.ones(100), *[np.zeros(1000)] * 40))


def test_targets_of_a_loss_are_labels_too() -> None:
    assert fires(outcomes_of(*[np.full(300, 0.5)] * 20, name="MSELoss_input_1")) == [19]
    outcomes = outcomes_of(np.full(300, 0.5), name="MSELoss_input_0")
    reason = reason_of(*outcomes)
    assert reason.startswith("no finite labels were saved: compute the loss with one of torch")


@pytest.mark.parametrize(("falls_to", "is_found"), [(0.09, True), (0.5, False)])
def test_a_loss_that_does_not_fall_has_constant_targets_on_purpose(
    falls_to: float, is_found: bool
) -> None:
    # As contrastive learning does, with the match as the first of many scores.
    trial = TrialBuilder()
    for step in range(100):
        scores = {"CrossEntropyLoss_input_0": np.ones((64, 100))}
        loss = {"CrossEntropyLoss_output_0": np.float64(4.6 if step < 10 else 4.6 * falls_to)}
        trial.step(step, {**scores, **loss, "CrossEntropyLoss_input_1": np.zeros(64, int)})
    assert bool(fires(trial.outcomes(LabelDegenerate()))) is is_found


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("elsewhere", [None, "same", "other"])
def test_true_and_made_up_are_no_labels_unless_validation_has_others(
    value: float, elsewhere: str | None
) -> None:
    # As of a discriminator, whose targets are 1 for rows that are true and 0 for others.
    trial = TrialBuilder()
    if elsewhere is not None:
        rows = np.full(200, value)
        rows[:40] += elsewhere == "other"
        trial.step(0, {"BCEWithLogitsLoss_input_1": rows}, mode=ModeKeys.EVAL)
    for step in range(1, 200):
        loss = {"BCEWithLogitsLoss_output_0": np.float64(0.7 if step < 10 else 0.01)}
        trial.step(step, {**loss, "BCEWithLogitsLoss_input_1": np.full(64, value)})
    assert bool(fires(trial.outcomes(LabelDegenerate()))) is (elsewhere == "other")


@pytest.mark.parametrize(("falls_to", "is_found"), [(0.05, True), (0.5, False)])
def test_made_up_labels_of_keras_are_no_data_unless_they_are_learned(
    falls_to: float, is_found: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",), losses=("^loss$",))
    for step in range(100):
        loss = {"BinaryCrossentropyLoss_output_0": np.float64(0.7 if step < 10 else falls_to)}
        trial.step(step, {**loss, "loss": np.float64(0.7), "labels": np.ones((64, 1))})
    assert bool(fires(trial.outcomes(LabelDegenerate()))) is is_found


def test_a_validation_that_is_sorted_is_no_training() -> None:
    trial = make_run(
        *({"labels": np.full(500, 3)} for _ in range(40)),
        collections={"labels": ("^labels$",)},
        mode=ModeKeys.EVAL,
    )
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(LabelDegenerate()))


def test_texts_have_no_smallest() -> None:
    assert reason_of(*outcomes_of(np.array(["a", "b"]))).startswith("no finite labels were saved")


def test_more_tensors_than_can_be_followed_do_not_break_it() -> None:
    trial = make_run(
        *({f"{at:02d}_labels": np.full(500, 7) for at in range(40)} for _ in range(2)),
        collections={"labels": ("_labels$",)},
    )
    (outcome, _) = trial.outcomes(LabelDegenerate(patience=1))
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.tensor == "00_labels"


def test_targets_of_a_loss_of_ones_own_are_judged_where_validation_has_others() -> None:
    def outcomes(of_validation: float) -> list[Outcome]:
        trial = TrialBuilder()
        trial.collections(losses=("_output_0$",))
        for step in range(0, 60, 3):
            trial.step(step, _surprise(np.zeros((64, 1))), mode=ModeKeys.TRAIN)
            own = _surprise(np.full((64, 1), of_validation))
            trial.step(step + 1, own, mode=ModeKeys.EVAL)
        return trial.outcomes(LabelDegenerate())

    assert fires(outcomes(of_validation=3.0))
    # It may be a mask, or a weight, of which nobody knows what it should be.
    assert not fires(outcomes(of_validation=0.0))


def _surprise(targets: Any) -> Tensors:
    scores = np.random.default_rng(0).normal(size=(64, 3))
    return {
        "Surprise_input_0": scores,
        "Surprise_input_1": targets,
        "Surprise_output_0": np.float32(0.5),
    }
