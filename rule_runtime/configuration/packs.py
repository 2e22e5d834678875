"""Packs: sets of rules with their parameters, built-in or of entry points `stepwatch.packs`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.dense_start import add_dense_start
from rule_runtime.configuration.merging import merged
from rule_runtime.engine.parameters import nearest
from rule_runtime.engine.registry import create_rule, installed_objects
from rule_runtime.engine.rule import Rule

__all__ = ["ENTRY_POINT_GROUP", "PACKS", "Pack", "available_packs", "find_pack"]

ENTRY_POINT_GROUP: Final = "stepwatch.packs"
"""Entry points of this group name a `Pack`."""

_logger = logging.getLogger(__name__)
_OF_ACTIVATIONS: Final = re.compile(r"^((relu|tanh|sigmoid)_(input|output)|input_values)$")


@dataclass(frozen=True)
class Pack:
    """A set of rules.

    Attributes:
        name: Its name.
        summary: Its purpose in one sentence.
        parameters: Names of rules with the parameters that differ from their defaults.
        save_interval: Interval of saved steps for all collections; None for each rule's own.
        activations_interval: Interval of saved values of activations and model inputs, the largest
            part of the stored data; None for `save_interval`.
        begins_densely: Whether to save also the steps of `DENSE_STEPS`.
        statistics_only: Whether values are stored only for rules with `save_raw_tensor`.
    """

    name: str
    summary: str
    parameters: Mapping[str, Mapping[str, object]]
    save_interval: int | None = None
    activations_interval: int | None = None
    begins_densely: bool = False
    statistics_only: bool = False

    def rules(self) -> dict[str, Rule]:
        """Return the rules by name, in the order of the pack.

        Raises:
            ValueError: A rule or a parameter of the pack does not exist.
        """
        try:
            return {name: create_rule(name, given) for name, given in self.parameters.items()}
        except ValueError as error:
            raise ValueError(f"pack {self.name}: {error}") from error

    def collections(self) -> tuple[CollectionConfig, ...]:
        """Return the collections that the hook should save for all rules."""
        return self.collections_for(self.rules().values())

    def collections_for(self, rules: Iterable[Rule]) -> tuple[CollectionConfig, ...]:
        """Return the collections for other rules, with the pack's save steps and form.

        Args:
            rules: The rules.

        Raises:
            ValueError: Needs of rules conflict.
        """
        asked = [config for rule in rules for config in rule.requires()]
        joined = merged(CollectionConfig(config.name, self._adapted(config)) for config in asked)
        return merged(CollectionConfig(of.name, self._timed(of)) for of in joined)

    def with_interval(self, save_interval: int) -> Pack:
        """Return the pack with exactly this save interval.

        Args:
            save_interval: Interval of saved steps, also for activations and at the start.
        """
        return replace(
            self,
            save_interval=save_interval,
            activations_interval=None,
            begins_densely=False,
        )

    def _timed(self, config: CollectionConfig) -> dict[str, str]:
        """Return the parameters with the pack's save steps.

        Values of activations are saved less often; after step 10 only at multiples of
        `save_interval`.
        """
        parameters = dict(config.parameters)
        has_values = parameters.get("save_raw_tensor") == "True"
        is_large = has_values and _OF_ACTIVATIONS.match(config.name)
        if is_large and self.activations_interval:
            parameters["save_interval"] = str(self.activations_interval)
        if not self.begins_densely:
            return parameters
        return add_dense_start(parameters, (self.save_interval or 1) if is_large else 1)

    def _adapted(self, config: CollectionConfig) -> dict[str, str]:
        adapted = dict(config.parameters)
        if config.name in KNOWN_COLLECTIONS:
            adapted.setdefault("include_regex", KNOWN_COLLECTIONS[config.name])
        if self.save_interval is not None and "save_steps" not in adapted:
            adapted["save_interval"] = str(self.save_interval)
            for mode in ("train", "global"):
                adapted.pop(f"{mode}.save_interval", None)
        if self.statistics_only:
            adapted.setdefault("save_raw_tensor", "False")
        return adapted


_ORIGINAL: Final = Pack(
    name="original",
    summary="The rules of the original that need no argument, at its published defaults.",
    parameters={
        name: {}
        for name in (
            "CheckInputImages",
            "ClassImbalance",
            "Confusion",
            "DeadRelu",
            "ExplodingTensor",
            "FeatureImportanceOverweight",
            "LossNotDecreasing",
            "NLPSequenceRatio",
            "Overfit",
            "Overtraining",
            "PoorWeightInitialization",
            "SaturatedActivation",
            "StalledTrainingRule",
            "TreeDepth",
            "VanishingGradient",
            "WeightUpdateRatio",
        )
    },
)

_RECOMMENDED: Final = Pack(
    name="recommended",
    summary="Rules and thresholds that are silent on healthy runs.",
    parameters={
        "NonFinite": {},
        "LossDiverging": {},
        "LossSpike": {},
        "OscillatingLoss": {},
        "PlateauedLoss": {},
        "InitialLossMismatch": {},
        "PoorWeightInitialization": {"conditions": ("scale", "symmetry")},
        "LossInputMismatch": {},
        "WorseThanGuessing": {},
        "GeneralisationGap": {},
        "SuspiciouslyGood": {},
        "VanishingGradient": {"max_share": 1e-6, "patience": 10},
        "GradientNormExplosion": {},
        "LearningRateTooHigh": {},
        "LearningRateTooLow": {},
        "DeadOptimizer": {},
        "IneffectiveSteps": {},
        "OutputContract": {},
        "TrainingLoop": {},
        "MissingGradient": {},
        "ReplicaDivergence": {},
        "DeadRelu": {"threshold_layer": 80.0},
        "SaturatedActivation": {
            "threshold_tanh_min": -5.0,
            "threshold_tanh_max": 5.0,
            "threshold_sigmoid_min": -12.0,
            "threshold_sigmoid_max": 12.0,
            "threshold_inactivity": 50.0,
            "check_outputs": False,
            "threshold_slope": 0.2,
        },
        "DoubleActivation": {},
        "MissingActivation": {},
        "InputStatistics": {},
        "LabelDegenerate": {},
        "ClassImbalance": {
            "threshold_imbalance": 30.0,
            "threshold_misprediction": 1.0,
            "unlike_validation": True,
        },
        "StalledTrainingRule": {"check_gaps": False},
    },
    save_interval=10,
    activations_interval=100,
    begins_densely=True,
    statistics_only=True,
)

PACKS: Final[Mapping[str, Pack]] = MappingProxyType(
    {pack.name: pack for pack in (_ORIGINAL, _RECOMMENDED)}
)
"""The built-in packs by name."""


def available_packs() -> dict[str, Pack]:
    """Return the built-in and the installed packs by name.

    An entry point that is no pack, or whose name is taken, is skipped with a warning.
    """
    packs = dict(PACKS)
    for found in installed_objects(ENTRY_POINT_GROUP):
        if not isinstance(found, Pack):
            _logger.warning("ignored the entry point %r: it is not a stepwatch.Pack", found)
        elif packs.setdefault(found.name, found) is not found:
            _logger.warning("ignored the pack %s of an entry point: the name is taken", found.name)
    return packs


def find_pack(name: str) -> Pack:
    """Return a pack.

    Raises:
        ValueError: There is no such pack.
    """
    packs = PACKS if name in PACKS else available_packs()
    if name not in packs:
        raise ValueError(f"there is no pack {name!r}{nearest(name, packs)}")
    return packs[name]
