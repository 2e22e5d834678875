"""The kinds of faults, and which rules fit each: findings of other rules do not count.

A rule fits if it detects the fault itself, or its textbook symptom. The table was fixed before the
rules were first evaluated on programs that their authors had not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BY_CONSTRUCTION", "FITTING"]

BY_CONSTRUCTION: Final = frozenset({"data_leak", "stalled"})
"""Faults whose harm the validation error does not show: validation has the leak, too, and a run
that stalls has no error."""
_NOT_LEARNING: Final = ("PlateauedLoss", "LossNotDecreasing", "WorseThanGuessing")
_NOT_FINITE: Final = ("NonFinite", "ExplodingTensor")
_DIVERGING: Final = (*_NOT_FINITE, "LossSpike", "LossDiverging", "GradientNormExplosion")

FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    # The learning rate is far too high. Large steps also kill or saturate units.
    "lr_too_high": (
        "LearningRateTooHigh",
        "WeightUpdateRatio",
        "OscillatingLoss",
        "DeadRelu",
        "SaturatedActivation",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # The learning rate is far too low. A step below the precision of a weight does not change it.
    "lr_too_low": (
        "LearningRateTooLow",
        "WeightUpdateRatio",
        "DeadOptimizer",
        "UnchangedTensor",
        *_NOT_LEARNING,
    ),
    # An activation function was forgotten. The loss inputs show a forgotten LogSoftmax.
    "no_activation": (
        "MissingActivation",
        "InitialLossMismatch",
        "LossInputMismatch",
        "OutputContract",
    ),
    # An activation is applied twice. A ReLU before another activation looks like a dead one.
    "double_activation": (
        "DoubleActivation",
        "OutputContract",
        "InitialLossMismatch",
        "DeadRelu",
        *_NOT_LEARNING,
    ),
    # Weights are initialised far too large.
    "init_too_large": (
        "PoorWeightInitialization",
        "InitialLossMismatch",
        "SaturatedActivation",
        "WorseThanGuessing",
        *_DIVERGING,
    ),
    # Weights are initialised to one constant, mostly zero.
    "init_constant": (
        "PoorWeightInitialization",
        "AllZero",
        "TensorVariance",
        "VanishingGradient",
        "MissingGradient",
        "DeadRelu",
        *_NOT_LEARNING,
    ),
    # The ReLUs of a layer never fire; tanh or sigmoid units work in their flat parts.
    "dead_relu": ("DeadRelu", "VanishingGradient", "MissingGradient"),
    "saturated_activation": ("SaturatedActivation", "VanishingGradient", "MissingGradient"),
    # Inputs or targets are not scaled. Large gradients kill units or make the loss diverge.
    "missing_normalisation": (
        "InputStatistics",
        "CheckInputImages",
        "InitialLossMismatch",
        "SaturatedActivation",
        "DeadRelu",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # The loss does not fit the task. With the wrong sign it diverges, or falls below zero.
    "wrong_loss": (
        "LossInputMismatch",
        "OutputContract",
        "InitialLossMismatch",
        "Confusion",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # Labels do not belong to their inputs. The model memorises them: validation gets worse.
    "labels_shuffled": (
        "GeneralisationGap",
        "Overfit",
        "Overtraining",
        "Confusion",
        *_NOT_LEARNING,
    ),
    # Every training label is the same. Validation has others.
    "labels_constant": ("LabelDegenerate", "ClassImbalance", "GeneralisationGap"),
    # Nearly all training rows are of one class. Validation may be balanced.
    "class_imbalance": ("ClassImbalance", "LabelDegenerate", "GeneralisationGap"),
    # Weight decay makes steps of trees tiny; without splits, trees are constants.
    "weight_decay": ("LearningRateTooLow", "IneffectiveSteps", "OutputContract", *_NOT_LEARNING),
    "without_split": ("IneffectiveSteps", "OutputContract", "TreeDepth", *_NOT_LEARNING),
    # Part of the model is cut off from the loss (detach, no_grad), or from the optimizer.
    "frozen_layer": ("MissingGradient", "DeadOptimizer", "UnchangedTensor"),
    "optimiser_missing_parameters": ("DeadOptimizer", "UnchangedTensor", "WeightUpdateRatio"),
    # A recurrent state grows without bounds, and nothing is clipped.
    "exploding_rnn": ("InitialLossMismatch", "OscillatingLoss", "WorseThanGuessing", *_DIVERGING),
    # Gradients of float16 overflow: the loss scale is fixed.
    "fp16_overflow": _NOT_FINITE,
    # The target is among the inputs.
    "data_leak": ("SuspiciouslyGood", "FeatureImportanceOverweight"),
    # Too few rows, and no regularisation.
    "overfit": ("GeneralisationGap", "Overfit", "Overtraining"),
    # The training hangs.
    "stalled": ("StalledTrainingRule",),
}
