"""Which rule fits which fault: a finding of another rule does not count as finding the fault.

A rule fits if what it says is the fault itself, or its textbook symptom. Fixed before the held-out
programs were first judged. Rules that no pack has yet may be listed; they find nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["FITTING"]

_NOT_LEARNING: Final = ("PlateauedLoss", "LossNotDecreasing", "WorseThanGuessing")
_NOT_FINITE: Final = ("NonFinite", "ExplodingTensor")
_DIVERGING: Final = (*_NOT_FINITE, "LossSpike", "LossDiverging", "GradientNormExplosion")

FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    # Units that large steps have killed or driven into saturation are how a rate shows, too.
    "lr_too_high": (
        "LearningRateTooHigh",
        "WeightUpdateRatio",
        "OscillatingLoss",
        "DeadRelu",
        "SaturatedActivation",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # A step below the precision of a weight leaves it as it is.
    "lr_too_low": (
        "LearningRateTooLow",
        "WeightUpdateRatio",
        "DeadOptimizer",
        "UnchangedTensor",
        *_NOT_LEARNING,
    ),
    # A forgotten LogSoftmax shows in what the loss gets.
    "no_activation": (
        "MissingActivation",
        "InitialLossMismatch",
        "LossInputMismatch",
        "OutputContract",
    ),
    # A ReLU ahead of another activation cuts off half of its range: it shows as a dead one.
    "double_activation": (
        "DoubleActivation",
        "OutputContract",
        "InitialLossMismatch",
        "DeadRelu",
        *_NOT_LEARNING,
    ),
    "init_too_large": (
        "PoorWeightInitialization",
        "InitialLossMismatch",
        "SaturatedActivation",
        "WorseThanGuessing",
        *_DIVERGING,
    ),
    "init_constant": (
        "PoorWeightInitialization",
        "AllZero",
        "TensorVariance",
        "VanishingGradient",
        "MissingGradient",
        "DeadRelu",
        *_NOT_LEARNING,
    ),
    "dead_relu": ("DeadRelu", "VanishingGradient", "MissingGradient"),
    "saturated_activation": ("SaturatedActivation", "VanishingGradient", "MissingGradient"),
    # Large inputs make large gradients: the first steps kill units or make the loss diverge.
    "missing_normalisation": (
        "InputStatistics",
        "CheckInputImages",
        "InitialLossMismatch",
        "SaturatedActivation",
        "DeadRelu",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # A loss with the wrong sign is driven up, or below zero.
    "wrong_loss": (
        "LossInputMismatch",
        "OutputContract",
        "InitialLossMismatch",
        "Confusion",
        *_DIVERGING,
        *_NOT_LEARNING,
    ),
    # What cannot be learned is learned by heart: validation gets worse while training gets better.
    "labels_shuffled": (
        "GeneralisationGap",
        "Overfit",
        "Overtraining",
        "Confusion",
        *_NOT_LEARNING,
    ),
    # One answer is learned at once, and wrong wherever validation has others.
    "labels_constant": ("LabelDegenerate", "ClassImbalance", "GeneralisationGap"),
    # Where validation is balanced, a model of the frequent class gets worse there.
    "class_imbalance": ("ClassImbalance", "LabelDegenerate", "GeneralisationGap"),
    # Decay makes steps of trees tiny, or keeps them from splitting.
    "weight_decay": ("LearningRateTooLow", "IneffectiveSteps", "OutputContract", *_NOT_LEARNING),
    "without_split": ("IneffectiveSteps", "OutputContract", "TreeDepth", *_NOT_LEARNING),
    "frozen_layer": ("MissingGradient", "DeadOptimizer", "UnchangedTensor"),
    "optimiser_missing_parameters": ("DeadOptimizer", "UnchangedTensor", "WeightUpdateRatio"),
    "exploding_rnn": (
        "InitialLossMismatch",
        "OscillatingLoss",
        "WorseThanGuessing",
        *_DIVERGING,
    ),
    "fp16_overflow": _NOT_FINITE,
    "data_leak": ("SuspiciouslyGood", "FeatureImportanceOverweight"),
    "overfit": ("GeneralisationGap", "Overfit", "Overtraining"),
    "stalled": ("StalledTrainingRule",),
}
