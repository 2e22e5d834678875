"""Whether a rule applies to a framework: whether its hook can provide what the rule needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hook_layer.frameworks import Framework
from rule_runtime.engine.rule import Rule

__all__ = ["RULES_OF_DATA", "applies"]

RULES_OF_DATA: Final[Mapping[str, tuple[str, ...]]] = {
    "several ranks": ("ReplicaDivergence",),
    "counts of optimizer steps": ("IneffectiveSteps",),
    "inputs and outputs of linear layers": (
        "MissingActivation",
        "PoorWeightInitialization",
        "SaturatedActivation",
    ),
    "outputs of activations": ("DeadRelu",),
    "inputs of layers": ("InputStatistics",),
    "images and sequences": ("CheckInputImages", "NLPSequenceRatio"),
    "weights": ("WeightUpdateRatio",),
    "gradients": ("GradientNormExplosion", "VanishingGradient"),
    "the parameter of each gradient": ("DeadOptimizer", "MissingGradient"),
    "inputs of the loss": (
        "DoubleActivation",
        "InitialLossMismatch",
        "LossInputMismatch",
        "TrainingLoop",
        "WorseThanGuessing",
    ),
    "predictions, or inputs of the loss": ("OutputContract",),
    "labels": ("ClassImbalance", "LabelDegenerate", "SuspiciouslyGood"),
    "trees": ("FeatureImportanceOverweight", "TreeDepth"),
}
"""Data that some hooks cannot provide, and the rules that evaluate no step without it.

`Facts.lacks` names the data that a hook cannot provide; `FactContract` tests each hook.
"""


def applies(rule: type[Rule], framework: Framework) -> bool:
    """Return whether the framework's hook can provide what a rule needs."""
    return not any(rule.__name__ in RULES_OF_DATA[data] for data in framework.facts.lacks)
