"""Errors on their way from a process of a pool to the one that waits for it."""

from __future__ import annotations

import pickle

import pytest

from hook_layer.errors import InvalidCollectionConfigurationError, TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from rule_runtime.custom_rules.errors import RuleEvaluationConditionMet
from rule_runtime.trial.errors import (
    CollectionUnavailable,
    MissingCollectionFiles,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)


@pytest.mark.parametrize(
    "error",
    [
        TrainingStoppedError("the loss grows", "NonFinite"),
        InvalidCollectionConfigurationError("weigths", ["weights"]),
        StepUnavailable(3, ModeKeys.TRAIN),
        TensorUnavailable("w"),
        TensorUnavailableForStep("w", 3, reduction="l2"),
        CollectionUnavailable("weigths", "weights"),
        MissingCollectionFiles(),
        RuleEvaluationConditionMet("Mine", 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_arrives_as_it_was(error: Exception) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
