"""The built-in rules for the training API, with the names of `smdebug_rulesconfig`.

Each function returns a new dict for `Rule.sagemaker`, equal to that of `smdebug_rulesconfig` 1.0.2.
If it names no collection, the rule uses what the job saves anyway; `requires()` of our rule lists
what it needs.

Differences from there: `get_collection("relu_output")` and `get_collection("relu_input")` have the
same form as the others. An unknown name is an error that suggests the nearest one, not None.
"""

from __future__ import annotations

from typing import Any, Final

from rule_runtime.configuration.actions import (
    SMS,
    ActionList,
    Email,
    StopTraining,
    is_valid_action_object,
)
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.parameters import nearest

__all__ = [
    "SMS",
    "ActionList",
    "Email",
    "StopTraining",
    "all_zero",
    "check_input_images",
    "class_imbalance",
    "confusion",
    "create_xgboost_report",
    "dead_relu",
    "exploding_tensor",
    "feature_importance_overweight",
    "get_collection",
    "is_valid_action_object",
    "loss_not_decreasing",
    "nlp_sequence_ratio",
    "overfit",
    "overtraining",
    "poor_weight_initialization",
    "saturated_activation",
    "similar_across_runs",
    "stalled_training_rule",
    "tensor_variance",
    "tree_depth",
    "unchanged_tensor",
    "vanishing_gradient",
    "weight_update_ratio",
]

_EVERY_500: Final = {"save_interval": "500"}
_COLLECTIONS: Final = {
    collection.name: collection
    for collection in (
        CollectionConfig("weights", _EVERY_500),
        CollectionConfig("gradients", _EVERY_500),
        CollectionConfig("losses", _EVERY_500),
        CollectionConfig("feature_importance", _EVERY_500),
        CollectionConfig(
            "input_image", {"include_regex": ".*hybridsequential0_input_0", **_EVERY_500}
        ),
        CollectionConfig("input_sequence", {"include_regex": ".*embedding0_input_0", **_EVERY_500}),
        CollectionConfig("relu_output", {"include_regex": ".*relu_output", **_EVERY_500}),
        CollectionConfig("relu_input", {"include_regex": ".*relu_input", **_EVERY_500}),
    )
}


def get_collection(collection_name: str) -> dict[str, Any]:
    """Return a ready-made collection, a member of `CollectionConfigurations`.

    Raises:
        ValueError: If there is no such collection.
    """
    if collection_name not in _COLLECTIONS:
        hint = nearest(collection_name, _COLLECTIONS)
        raise ValueError(f"there is no built-in collection {collection_name!r}{hint}")
    return _COLLECTIONS[collection_name].to_json()


def all_zero() -> dict[str, Any]:
    """Return the configuration of AllZero: tensors of zeros."""
    return _rule("AllZero")


def check_input_images() -> dict[str, Any]:
    """Return the configuration of CheckInputImages: images that are not normalised."""
    return _rule("CheckInputImages", get_collection("input_image"))


def class_imbalance() -> dict[str, Any]:
    """Return the configuration of ClassImbalance: rare or badly predicted classes."""
    return _rule("ClassImbalance")


def confusion() -> dict[str, Any]:
    """Return the configuration of Confusion: classes that are mistaken for others."""
    return _rule("Confusion")


def create_xgboost_report() -> dict[str, Any]:
    """Return the configuration of CreateXgboostReport: a report, no finding."""
    every_5 = {"save_interval": "5"}
    collections = [
        CollectionConfig("metrics", every_5),
        CollectionConfig("feature_importance", every_5),
        CollectionConfig("hyperparameters", {"save_steps": "0"}),
        CollectionConfig("predictions", every_5),
        CollectionConfig("labels", every_5),
    ]
    return _rule("CreateXgboostReport", *[collection.to_json() for collection in collections])


def dead_relu() -> dict[str, Any]:
    """Return the configuration of DeadRelu: layers most of whose ReLUs never fire."""
    return _rule("DeadRelu", get_collection("relu_output"))


def exploding_tensor() -> dict[str, Any]:
    """Return the configuration of ExplodingTensor: elements that are not finite."""
    return _rule("ExplodingTensor")


def feature_importance_overweight() -> dict[str, Any]:
    """Return the configuration of FeatureImportanceOverweight: features that outweigh others."""
    return _rule("FeatureImportanceOverweight", get_collection("feature_importance"))


def loss_not_decreasing() -> dict[str, Any]:
    """Return the configuration of LossNotDecreasing: a loss that does not fall."""
    return _rule("LossNotDecreasing", get_collection("losses"))


def nlp_sequence_ratio() -> dict[str, Any]:
    """Return the configuration of NLPSequenceRatio: sequences mostly of padding."""
    return _rule("NLPSequenceRatio", get_collection("input_sequence"))


def overfit() -> dict[str, Any]:
    """Return the configuration of Overfit: validation loss above training loss."""
    return _rule("Overfit")


def overtraining() -> dict[str, Any]:
    """Return the configuration of Overtraining: training without improvement."""
    return _rule("Overtraining")


def poor_weight_initialization() -> dict[str, Any]:
    """Return the configuration of PoorWeightInitialization: a start that cannot succeed."""
    return _rule("PoorWeightInitialization", get_collection("relu_input"))


def saturated_activation() -> dict[str, Any]:
    """Return the configuration of SaturatedActivation: tanh or sigmoid at their ends."""
    return _rule("SaturatedActivation")


def similar_across_runs() -> dict[str, Any]:
    """Return the configuration of SimilarAcrossRuns: tensors unlike another run's."""
    return _rule("SimilarAcrossRuns")


def stalled_training_rule() -> dict[str, Any]:
    """Return the configuration of StalledTrainingRule: training that does not go on."""
    return _rule("StalledTrainingRule")


def tensor_variance() -> dict[str, Any]:
    """Return the configuration of TensorVariance: variances out of bounds."""
    return _rule("TensorVariance")


def tree_depth() -> dict[str, Any]:
    """Return the configuration of TreeDepth: trees that are too deep."""
    return _rule("TreeDepth")


def unchanged_tensor() -> dict[str, Any]:
    """Return the configuration of UnchangedTensor: tensors that stay the same."""
    return _rule("UnchangedTensor")


def vanishing_gradient() -> dict[str, Any]:
    """Return the configuration of VanishingGradient: gradients close to zero."""
    return _rule("VanishingGradient", get_collection("gradients"))


def weight_update_ratio() -> dict[str, Any]:
    """Return the configuration of WeightUpdateRatio: updates too large or too small."""
    return _rule("WeightUpdateRatio", get_collection("weights"))


def _rule(name: str, *collections: dict[str, Any]) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "DebugRuleConfiguration": {
            "RuleConfigurationName": name,
            "RuleParameters": {"rule_to_invoke": name},
        }
    }
    if collections:
        configuration["CollectionConfigurations"] = list(collections)
    return configuration
