from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
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


def outcomes_of(*labels: object, name: str = "labels") -> list[Outcome]:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step, value in enumerate(labels):
        trial.step(step, {name: value})
    return trial.outcomes(LabelDegenerate())


def test_fires_once_enough_labels_are_all_the_same() -> None:
    outcomes = outcomes_of(*[np.full(64, 7)] * 4)
    assert [type(outcome) for outcome in outcomes] == [Passed, Passed, Passed, IssueFound]
    found = outcomes[-1]
    assert isinstance(found, IssueFound)
    assert found.evidence.sentence == "labels: is 7 in all of 256 elements so far"


@pytest.mark.parametrize(("size", "kind"), [(200, IssueFound), (199, Passed)])
def test_the_number_of_labels_counts(size: int, kind: type) -> None:
    assert isinstance(outcomes_of(np.zeros(size))[0], kind)


def test_two_values_are_enough_for_ever() -> None:
    outcomes = outcomes_of(np.zeros(100), np.ones(100), *[np.zeros(100)] * 5)
    assert not [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]


def test_targets_of_a_loss_are_labels_too() -> None:
    (outcome,) = outcomes_of(np.full(300, 0.5), name="MSELoss_input_1")
    assert isinstance(outcome, IssueFound)
    (outcome,) = outcomes_of(np.full(300, 0.5), name="MSELoss_input_0")
    assert outcome == NotEvaluated("no labels were saved")


def test_modes_are_judged_by_themselves() -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    trial.step(0, {"labels": np.arange(300)}, mode=ModeKeys.EVAL)
    trial.step(1, {"labels": np.zeros(300)}, mode=ModeKeys.TRAIN)
    assert isinstance(trial.outcomes(LabelDegenerate())[1], IssueFound)


def test_texts_have_no_smallest() -> None:
    assert outcomes_of(np.array(["a", "b"])) == [NotEvaluated("no label is a finite number")]


def test_more_tensors_than_can_be_followed_do_not_break_it() -> None:
    trial = TrialBuilder()
    for step in range(2):
        trial.step(step, {f"{at:02d}_loss_input_1": np.zeros(200) for at in range(40)})
    (outcome, _) = trial.outcomes(LabelDegenerate())
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.tensor == "00_loss_input_1"
