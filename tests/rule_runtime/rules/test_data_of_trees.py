"""Losses of boosted trees whose data the hook describes, whatever its names are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import LossDiverging
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.rules.learning_rate_too_low import LearningRateTooLow
from rule_runtime.rules.overfit import Overfit
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at, judged_at

NAMES = [
    ("validation_0", "validation_1"),
    ("dtrain", "dval"),
    ("eval", "train"),
    ("train", "validation"),
    ("all", "valley"),
]
FALLING = np.geomspace(0.7, 0.01, 20)
RISING = np.linspace(0.7, 1.4, 20)


def of_trees(
    training: Sequence[float] | np.ndarray = (),
    validation: Sequence[float] | np.ndarray = (),
    names: tuple[str, str] = NAMES[0],
) -> TrialBuilder:
    """Return a run that saves every fifth round, of data of these names."""
    trial = TrialBuilder()
    trial.collections(
        losses=("-",),
        training_metrics=(f"^{names[0]}-",),
        validation_metrics=(f"^{names[1]}-",),
        average_shap=("^shap/",),
    )
    for at in range(max(len(training), len(validation))):
        tensors = {"hyperparameters/eta": np.float64(1e-4)} | {
            f"{name}-logloss": np.float64(losses[at])
            for name, losses in zip(names, (training, validation), strict=True)
            if len(losses)
        }
        trial.step(5 * at, tensors, mode=ModeKeys.GLOBAL)
    return trial


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("rule", [GeneralisationGap(), Overfit(patience=2)])
def test_trees_that_are_good_on_their_own_data_alone(rule: Rule, names: tuple[str, str]) -> None:
    assert found_at(rule, of_trees(FALLING, RISING, names))
    assert not found_at(rule, of_trees(RISING, FALLING, names))


@pytest.mark.parametrize("names", NAMES)
def test_validation_that_is_too_good(names: tuple[str, str]) -> None:
    losses = np.geomspace(0.7, 0.0005, 20)
    (first, *_) = found_at(SuspiciouslyGood(), of_trees(losses, losses, names))
    assert losses[first // 5] < 0.02 * losses[0]
    assert not found_at(SuspiciouslyGood(), of_trees(losses, 3 * losses, names))


@pytest.mark.parametrize("names", NAMES)
def test_losses_of_other_data_need_not_fall(names: tuple[str, str]) -> None:
    losses = np.geomspace(0.7, 70, 20)
    rule = LossDiverging()
    assert found_at(rule, of_trees(losses, FALLING, names))
    assert not found_at(rule, of_trees(FALLING, losses, names))
    assert not judged_at(PlateauedLoss(), of_trees(validation=np.full(100, 0.7), names=names))


@pytest.mark.parametrize("names", NAMES)
def test_trees_that_learn_too_slowly(names: tuple[str, str]) -> None:
    slow = 0.7 - 1e-6 * np.arange(20)
    assert found_at(LearningRateTooLow(), of_trees(slow, FALLING, names))
    assert not found_at(LearningRateTooLow(), of_trees(FALLING, slow, names))


@pytest.mark.parametrize("names", NAMES)
def test_validation_without_training_losses(names: tuple[str, str]) -> None:
    for outcome in of_trees(validation=RISING, names=names).outcomes(GeneralisationGap()):
        assert isinstance(outcome, NotEvaluated)
        assert "give the training data in `evals`" in outcome.reason


def test_evidence_names_the_tensor_as_it_was_saved() -> None:
    trial = of_trees(np.geomspace(0.7, 70, 20))
    (outcome, *_) = [o for o in trial.outcomes(LossDiverging()) if hasattr(o, "evidence")]
    assert outcome.evidence.tensor == "validation_0-logloss"
