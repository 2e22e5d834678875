from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome
from rule_runtime.evaluation.rule import Rule
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors


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
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step, value in enumerate(labels):
        trial.step(step, {name: value, **beside})
    return trial.outcomes(LabelDegenerate())


def fires(outcomes: list[Outcome]) -> list[int]:
    return [at for at, outcome in enumerate(outcomes) if isinstance(outcome, IssueFound)]


def test_fires_once_enough_labels_are_all_the_same() -> None:
    outcomes = outcomes_of(*[np.full(64, 7)] * 20)
    assert fires(outcomes) == [19]
    found = outcomes[-1]
    assert isinstance(found, IssueFound)
    assert found.evidence.sentence == "labels: is 7 in all of 1280 rows so far"


@pytest.mark.parametrize(("size", "at"), [(25, [19]), (24, [])])
def test_the_number_of_labels_counts(size: int, at: list[int]) -> None:
    assert fires(outcomes_of(*[np.full(size, 7.0)] * 20)) == at


def test_a_class_of_two_may_be_rare() -> None:
    outcomes = outcomes_of(*[np.zeros(64)] * 80)
    assert fires(outcomes)[0] == 78  # 79 * 64 = 5,056 elements
    scores = {"CrossEntropyLoss_input_0": np.ones((64, 10))}
    outcomes = outcomes_of(*[np.zeros(64)] * 20, name="CrossEntropyLoss_input_1", **scores)
    assert fires(outcomes) == [19]


def test_two_values_are_enough_for_ever() -> None:
    assert not fires(outcomes_of(np.zeros(100), np.ones(100), *[np.zeros(1000)] * 40))


def test_targets_of_a_loss_are_labels_too() -> None:
    assert fires(outcomes_of(*[np.full(300, 0.5)] * 20, name="MSELoss_input_1")) == [19]
    outcomes = outcomes_of(np.full(300, 0.5), name="MSELoss_input_0")
    assert outcomes == [NotEvaluated("no labels were saved")]


@pytest.mark.parametrize(("falls_to", "is_found"), [(0.09, True), (0.5, False)])
def test_a_loss_that_does_not_fall_has_constant_targets_on_purpose(
    falls_to: float, is_found: bool
) -> None:
    # As contrastive learning does, with the match as the first of many scores.
    trial = TrialBuilder()
    for step in range(100):
        scores = {"CrossEntropyLoss_input_0": np.ones((64, 100))}
        loss = {"CrossEntropyLoss_output_0": np.float64(4.6 if step < 10 else 4.6 * falls_to)}
        trial.step(step, {**scores, **loss, "CrossEntropyLoss_input_1": np.zeros(64)})
    assert bool(fires(trial.outcomes(LabelDegenerate()))) is is_found


def test_a_validation_that_is_sorted_is_no_training() -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step in range(40):
        trial.step(step, {"labels": np.full(500, 3)}, mode=ModeKeys.EVAL)
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(LabelDegenerate()))


def test_texts_have_no_smallest() -> None:
    assert outcomes_of(np.array(["a", "b"])) == [NotEvaluated("no label is a finite number")]


def test_more_tensors_than_can_be_followed_do_not_break_it() -> None:
    trial = TrialBuilder()
    for step in range(2):
        trial.step(step, {f"{at:02d}_loss_input_1": np.full(500, 7) for at in range(40)})
    (outcome, _) = trial.outcomes(LabelDegenerate(patience=1))
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.tensor == "00_loss_input_1"


@pytest.mark.parametrize(
    ("elsewhere", "first"),
    [
        (np.arange(100) % 15 < 1, 19),  # 7 % are of the other class
        (np.arange(100) % 50 < 1, 78),  # 2 % are
        (np.arange(40) % 2 < 1, 78),  # too few rows to tell
        (np.zeros(100), 78),
        (np.arange(100) % 3, 78),  # no labels of 0 and 1
    ],
)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_class_that_other_modes_have_is_not_rare(
    elsewhere: np.ndarray[Any, Any], first: int, value: float
) -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    labels = elsewhere if not value or elsewhere.max() > 1 else 1.0 - elsewhere
    trial.step(0, {"labels": labels * 1.0}, mode=ModeKeys.EVAL)
    for step in range(1, 81):
        trial.step(step, {"labels": np.full(64, value)})
    assert fires(trial.outcomes(LabelDegenerate()))[0] == 1 + first


def test_labels_of_other_modes_are_counted_together() -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step in range(4):
        mode = ModeKeys.EVAL if step % 2 else ModeKeys.PREDICT
        trial.step(step, {"labels": np.arange(20) % 2}, mode=mode)
    for step in range(4, 24):
        trial.step(step, {"labels": np.zeros(64)})
    assert fires(trial.outcomes(LabelDegenerate())) == [23]
