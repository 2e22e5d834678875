"""DoubleActivation of what Keras saves: predictions, labels and a mean of the epoch's losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

CLASSES = np.arange(32) % 10
ONE_HOT = np.eye(10)[CLASSES]


def probabilities(step: int) -> Any:
    scores = np.random.default_rng(step).normal(0, 1, (32, 10)) + step / 10 * ONE_HOT
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def once(predicted: Any) -> float:
    return -float(np.log(predicted[np.arange(32), CLASSES]).mean())


def twice(predicted: Any) -> float:
    return float(np.log(np.exp(predicted).sum(axis=1)).mean() - (predicted * ONE_HOT).sum() / 32)


def trained(
    loss: Any, labels: Any = CLASSES, *, length: int = 5, scale: float = 1.0, begin: int = 0
) -> TrialBuilder:
    """Return a run in which `loss` is, as in Keras, the mean since an epoch of 5 steps began."""
    trial = TrialBuilder()
    trial.collections(losses=("^loss$",), predictions=("^predictions$",), labels=("^labels$",))
    for step in range(begin, 15):
        first = step - step % length
        losses = [loss(probabilities(at)) for at in range(first, step + 1)]
        predicted = scale * probabilities(step)
        named = {"predictions": predicted.astype(np.float32), "labels": labels}
        trial.step(step, {**named, "loss": np.float32(np.mean(losses))}, mode=ModeKeys.TRAIN)
    return trial


@pytest.mark.parametrize(
    "labels", [CLASSES, CLASSES[:, None], CLASSES.astype(np.float32), ONE_HOT.astype(np.float32)]
)
def test_probabilities_as_scores_are_known_where_epochs_begin(labels: Any) -> None:
    trial = trained(twice, labels)
    assert found_at(DoubleActivation(), trial) == [5, 10]
    found = next(o for o in trial.outcomes(DoubleActivation()) if isinstance(o, IssueFound))
    assert found.evidence.tensor == "predictions"
    assert "the loss is exactly what a softmax of these gives" in found.evidence.sentence


def test_probabilities_as_such_are_well() -> None:
    trial = trained(once)
    assert not found_at(DoubleActivation(), trial)
    outcomes = trial.outcomes(DoubleActivation())
    assert not any(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_a_single_step_may_be_chance() -> None:
    assert not found_at(DoubleActivation(), trained(twice, length=15))


def test_the_first_step_tells_of_a_loss_of_another_kind() -> None:
    assert not found_at(DoubleActivation(), trained(twice, begin=1))


@pytest.mark.parametrize(
    ("loss", "labels", "scale"),
    [
        (lambda predicted: 1.001 * twice(predicted), CLASSES, 1.0),  # with a regularisation
        (twice, CLASSES, 1.1),  # no probabilities
        (twice, CLASSES + 1, 1.0),  # no classes
        (twice, CLASSES + 0.5, 1.0),
        (twice, 0.9 * ONE_HOT + 0.01, 1.0),
        (twice, np.zeros((32, 3)), 1.0),
    ],
)
def test_what_is_not_known_is_not_judged(loss: Any, labels: Any, scale: float) -> None:
    assert not found_at(DoubleActivation(), trained(loss, labels, scale=scale))


def test_even_probabilities_tell_nothing() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^loss$",))
    for step in range(4):
        even = {"predictions": np.full((32, 10), 0.1), "labels": CLASSES, "loss": np.log(10)}
        trial.step(step, even, mode=ModeKeys.TRAIN)
    assert not found_at(DoubleActivation(), trial)
