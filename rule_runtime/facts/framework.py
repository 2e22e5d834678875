"""The framework that trains the model of a run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # commands start without numpy
    from hook_layer.format.collections_file import CollectionEntry
    from rule_runtime.trial.step_view import StepView

__all__ = ["Framework", "framework_of", "framework_of_collections"]


class Framework(Enum):
    """Frameworks that train models."""

    TORCH = "torch"
    KERAS = "keras"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


_OF_BOOSTING: Final = "average_shap"
"""A collection of every run of XGBoost, and of no other run."""
_OF_KERAS: Final = "sm_metrics"
"""A collection of every run of Keras or of TensorFlow sessions."""
_OF_BLOCKS: Final = ".*loss._(?!input).*output"
"""A pattern in the collection `losses` of MXNet only."""


def framework_of(step: StepView) -> Framework:
    """Return the framework from the collections of its hook; PyTorch if they are unknown."""
    files = (step.collections_file(worker) for worker in step.workers)
    return framework_of_collections(
        next((file.collections for file in files if file is not None), {})
    )


def framework_of_collections(collections: Mapping[str, CollectionEntry]) -> Framework:
    """Return the framework from the collections of a file; PyTorch if there are none."""
    if _OF_BOOSTING in collections:
        return Framework.XGBOOST
    losses = collections.get("losses")
    patterns = () if losses is None else losses.include_regex
    if _OF_KERAS in collections:
        return Framework.KERAS if patterns else Framework.TENSORFLOW
    return Framework.MXNET if _OF_BLOCKS in patterns else Framework.TORCH
