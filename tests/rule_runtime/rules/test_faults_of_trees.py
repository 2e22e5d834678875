"""Boosted trees that learn nothing, and the labels that they are trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.configuration.packs import find_pack
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.ineffective_steps import IneffectiveSteps
from rule_runtime.rules.learning_rate_too_low import LearningRateTooLow
from rule_runtime.rules.output_contract import OutputContract
from tests.rule_runtime.rules.xgboost_trials import boost, judged

if TYPE_CHECKING:
    from xgboost import DMatrix

ROWS = 600
SAVED = ("training_data", "optimizer_steps", "labels", "predictions", "hyperparameters")


def data(seed: int, positive: int = ROWS // 2, label: int | None = None) -> DMatrix:
    """Return rows of two classes that a column tells apart, with noise."""
    xgboost = pytest.importorskip("xgboost")
    random = np.random.default_rng(seed)
    labels = (np.arange(ROWS) < positive).astype(float) if label is None else np.full(ROWS, label)
    return xgboost.DMatrix(random.normal(size=(ROWS, 4)) + labels[:, None], labels)


def trained(folder: Path, **given: Any) -> WrittenTrial:
    """Return the trial of a training; `positive`, `valid` are numbers of rows of class 1."""
    training = data(0, given.pop("positive", ROWS // 2), given.pop("label", None))
    valid = data(1, given.pop("valid", ROWS // 2))
    parameters = {"objective": "binary:logistic", "eta": 0.1, "base_score": 0.5, **given}
    return boost(folder, *SAVED, data=training, validation=valid, rounds=24, **parameters)


def found(trial: WrittenTrial, rule: Rule) -> str:
    """Return the finding of a rule in words; empty without one."""
    evidence = judged(trial, rule).evidence
    return "" if evidence is None else evidence.sentence


def recommended(name: str) -> Rule:
    return find_pack("recommended").rules()[name]


@pytest.mark.parametrize(
    "parameters", [{"min_child_weight": 1e6}, {"gamma": 1e6}, {"reg_alpha": 1e6}]
)
def test_trees_that_never_split(tmp_path: Path, parameters: dict[str, Any]) -> None:
    sentence = found(trained(tmp_path, **parameters), IneffectiveSteps())
    assert "none of the 5 trees so far has a split: the model predicts a constant" in sentence


def test_trees_that_stop_to_split_once_they_have_learned(tmp_path: Path) -> None:
    trial = trained(tmp_path, gamma=30, eta=1.0, max_depth=2)
    assert not found(trial, IneffectiveSteps())
    assert not found(trial, LearningRateTooLow())


def test_a_few_rounds_decide_on_labels_and_splits(tmp_path: Path) -> None:
    trial = boost(tmp_path, *SAVED, data=data(0), validation=data(1), rounds=12)
    for name in ("LabelDegenerate", "IneffectiveSteps"):
        state = judged(trial, recommended(name))
        assert state.counts.evaluated == 12, state.reason


@pytest.mark.parametrize("parameters", [{"reg_lambda": 1e6}, {"eta": 1e-4}])
def test_steps_that_are_too_small(tmp_path: Path, parameters: dict[str, Any]) -> None:
    state = judged(trained(tmp_path, **parameters), LearningRateTooLow())
    assert state.evidence is not None
    assert state.evidence.tensor == "optimizer_steps/effective_rate"
    assert "by eta, reg_lambda and reg_alpha together" in state.evidence.sentence


def test_strong_regularisation_that_learns(tmp_path: Path) -> None:
    trial = trained(tmp_path, reg_lambda=300, reg_alpha=5, min_child_weight=20)
    for rule in (IneffectiveSteps(), LearningRateTooLow(), OutputContract()):
        assert not found(trial, rule)


def test_training_labels_that_are_all_equal(tmp_path: Path) -> None:
    sentence = found(trained(tmp_path, label=1), recommended("LabelDegenerate"))
    assert sentence == "training_data/Label: is 1 in all of 600 rows so far"
    assert not found(trained(tmp_path / "two"), recommended("LabelDegenerate"))


def test_a_class_that_is_rare_in_training_alone(tmp_path: Path) -> None:
    sentence = found(trained(tmp_path, positive=12), recommended("ClassImbalance"))
    assert sentence.startswith("training_data/Label: class 0 has 588 labels, and class 1 has 12")


def test_rare_classes_of_a_healthy_training(tmp_path: Path) -> None:
    rule = recommended("ClassImbalance")
    assert not found(trained(tmp_path / "weights", positive=12, scale_pos_weight=49), rule)
    assert not found(trained(tmp_path / "both", positive=35, valid=8), rule)
    # Labels of validation are no reason on their own.
    assert not found(trained(tmp_path / "valid", valid=6), rule)


def test_numbers_are_not_counted_as_classes(tmp_path: Path) -> None:
    trial = trained(tmp_path, positive=12, objective="count:poisson")
    assert not found(trial, recommended("ClassImbalance"))


def test_predictions_that_are_constant(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    missing = np.full((ROWS, 4), np.nan)
    valid = xgboost.DMatrix(missing, np.arange(ROWS) % 2)
    trial = boost(tmp_path, *SAVED, data=data(0), validation=valid, rounds=12)
    assert "gets the same output for all rows" in found(trial, OutputContract())
    trial = boost(tmp_path / "other", *SAVED, data=data(0), validation=data(1), rounds=12)
    assert not found(trial, OutputContract())


def test_classes_may_be_predicted_as_the_frequent_one(tmp_path: Path) -> None:
    trial = trained(tmp_path, objective="binary:hinge", min_child_weight=1e6)
    assert not found(trial, OutputContract())
