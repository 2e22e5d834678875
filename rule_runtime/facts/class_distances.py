"""Whether a distance compares outputs with labels that are numbers of classes."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

import numpy as np

from rule_runtime.facts.loss import Loss
from rule_runtime.facts.loss_contract import LossMismatch

__all__ = ["DISTANCES_OF_TREES", "ClassLabels", "distance_to_classes", "is_distance"]

DISTANCES_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
"""Metrics of XGBoost that are distances."""
_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)
_MAX_COORDINATES: Final = 8
"""Columns of targets that are whole numbers because they are places, such as corners of boxes."""
_SAME: Final = 1e-5
"""Relative error of equal statistics."""


class ClassLabels(NamedTuple):
    """Labels of a step that are numbers of classes.

    Attributes:
        worker: The worker.
        num_classes: Number of classes.
        statistics: Size, minimum, maximum and mean at this step.
    """

    worker: str
    num_classes: int
    statistics: tuple[float, ...]


def is_distance(loss: Loss) -> bool:
    """Tell by its name whether a loss may compare each output with its own target.

    Args:
        loss: A loss.
    """
    return bool(loss.owner) and not _NO_DISTANCE.match(loss.name)


def distance_to_classes(loss: Loss, labels: list[ClassLabels]) -> LossMismatch | None:
    """Return what is wrong if the targets of a distance are numbers of classes.

    Args:
        loss: A loss and what it compares; of boosted trees a metric alone.
        labels: Labels and targets that are numbers of classes.
    """
    for of in labels:
        is_tree = DISTANCES_OF_TREES.match(loss.name) is not None
        if of.worker == loss.worker and (is_tree or _are_targets(loss, of)):
            message = f"is a distance to labels that are numbers of {of.num_classes} classes"
            remedy = "Use a loss of classes, such as nn.CrossEntropyLoss or multi:softprob."
            return LossMismatch("classes", of.num_classes, 2.0, message, remedy)
    return None


def _are_targets(loss: Loss, labels: ClassLabels) -> bool:
    """Tell whether a distance compares one output with each of some labels."""
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or not is_distance(loss):
        return False
    if outputs.size != targets.size or not 0 <= targets.low <= targets.high < labels.num_classes:
        return False
    statistics = (targets.size, targets.low, targets.high, targets.mean)
    are_coordinates = 1 < math.prod((targets.shape or ())[1:]) <= _MAX_COORDINATES
    return not are_coordinates and np.allclose(statistics, labels.statistics, rtol=_SAME, atol=0)
