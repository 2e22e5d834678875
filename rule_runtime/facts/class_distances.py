"""Finds distance losses that compare outputs with class numbers."""

from __future__ import annotations

import math
import re
from typing import Final

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.class_labels import ClassTallies, class_labels
from rule_runtime.facts.losses import RELATIVE_ERROR, Input, Loss, Losses, described
from rule_runtime.trial.step_view import StepView

__all__ = ["distances_to_classes"]

_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
"""Metrics of XGBoost that are distances."""
_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)


def distances_to_classes(
    step: StepView, memory: Memory, labels_regex: tuple[str, ...], min_labels: int
) -> dict[str, int]:
    """Count labels and targets; return the number of classes for each distance to class numbers.

    The distance must compare one output with each label. There must be enough labels, of 3 to 32
    about equally frequent classes. Targets match labels if their statistics are equal. The result
    has the number of classes by the loss's key.

    Memory: the state of `ClassTallies`.
    """
    losses = [loss for loss in step.fact(Losses).losses if _is_distance(loss)]
    owners = sorted({loss.owner for loss in losses} - {""})
    regex = (*labels_regex, *(f"^{re.escape(owner)}_input_1$" for owner in owners))
    tallies = ClassTallies(memory)
    tallies.add(step.mode, class_labels(step, regex)[0])
    found = {}
    for (name, worker), labels in described(step.tensors(regex=regex)).items():
        num_classes = tallies.of(step.mode, name).num_balanced_classes(min_labels)
        for loss in losses if num_classes else ():
            is_of_labels = _OF_TREES.match(loss.name) or _has_targets(loss, labels)
            if loss.worker == worker and is_of_labels:
                found[loss.key] = num_classes or 0
    return found


def _is_distance(loss: Loss) -> bool:
    """Return whether a loss may compare each output with its own target, by its name."""
    is_tree = _OF_TREES.match(loss.name) is not None
    return is_tree or (bool(loss.owner) and not _NO_DISTANCE.match(loss.name))


def _has_targets(loss: Loss, labels: Input) -> bool:
    """Return whether a loss compares single outputs with targets that equal some labels."""
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or outputs.size != targets.size:
        return False
    is_one_column = math.prod((targets.shape or ())[1:]) == 1
    ends = (targets.size, targets.low, targets.high)
    is_same = ends == (labels.size, labels.low, labels.high)
    is_same &= math.isclose(targets.mean, labels.mean, rel_tol=RELATIVE_ERROR)
    return is_one_column and is_same
