"""Whether a rule applies to a framework: whether its hook can provide what the rule needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from rule_runtime.engine.rule import Rule
from rule_runtime.facts.framework import Framework

__all__ = ["applies"]

_TORCH = Framework.TORCH
_KERAS = Framework.KERAS
_SESSIONS = Framework.TENSORFLOW
_MXNET = Framework.MXNET
_TREES = Framework.XGBOOST


class _Need(NamedTuple):
    """Data that the hooks of some frameworks cannot provide; `FactContract` tests each hook.

    Attributes:
        data: The data.
        lacking: The frameworks without it.
        rules: The rules that cannot evaluate any step without it.
    """

    data: str
    lacking: frozenset[Framework]
    rules: frozenset[str]


def _need(data: str, lacking: tuple[Framework, ...], *rules: str) -> _Need:
    return _Need(data, frozenset(lacking), frozenset(rules))


_NEEDS: Final = (
    _need("several ranks", (_KERAS, _SESSIONS, _MXNET, _TREES), "ReplicaDivergence"),
    _need("counts of optimizer steps", (_KERAS, _SESSIONS, _MXNET), "IneffectiveSteps"),
    _need(
        "inputs and outputs of linear layers",
        (_KERAS, _SESSIONS, _TREES),
        *("MissingActivation", "PoorWeightInitialization", "SaturatedActivation"),
    ),
    _need("outputs of activations", (_SESSIONS, _TREES), "DeadRelu"),
    _need("inputs of layers", (_SESSIONS, _TREES), "InputStatistics"),
    _need("images and sequences", (_TREES,), "CheckInputImages", "NLPSequenceRatio"),
    _need("weights", (_TREES,), "WeightUpdateRatio"),
    _need("gradients", (_TREES,), "GradientNormExplosion", "VanishingGradient"),
    _need(
        "the parameter of each gradient", (_SESSIONS, _TREES), "DeadOptimizer", "MissingGradient"
    ),
    _need(
        "inputs of the loss",
        (_SESSIONS, _TREES),
        *("DoubleActivation", "InitialLossMismatch", "LossInputMismatch"),
        *("TrainingLoop", "WorseThanGuessing"),
    ),
    _need("predictions, or inputs of the loss", (_SESSIONS,), "OutputContract"),
    _need("labels", (_SESSIONS,), "ClassImbalance", "LabelDegenerate", "SuspiciouslyGood"),
    _need(
        "trees",
        (_TORCH, _KERAS, _SESSIONS, _MXNET),
        *("FeatureImportanceOverweight", "TreeDepth"),
    ),
)


def applies(rule: type[Rule], framework: Framework) -> bool:
    """Return whether the framework's hook can provide what a rule needs."""
    name = rule.__name__
    return not any(framework in need.lacking and name in need.rules for need in _NEEDS)
