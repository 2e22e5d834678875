"""Class labels of a step, which are predicted incorrectly, and their counts over a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.labels import TRAINING_LABELS, TRAINING_WEIGHTS, training_labels
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.facts.model_inputs import FIRST_INPUTS
from rule_runtime.numerics.class_pairs import class_pairs, true_classes
from rule_runtime.numerics.label_tally import LabelTally, is_repeated
from rule_runtime.trial.step_view import StepView

__all__ = [
    "MAX_CLASSES",
    "ClassLabels",
    "ClassTallies",
    "class_labels",
    "targets_of_classes",
    "training_classes",
]

MAX_CLASSES: Final = 1024
"""Maximum number of classes, at most 8 MiB in a matrix; labels with more are not classes."""

_VALIDATION_OF_TREES: Final = "labels"
"""Name of the labels of the validation data in the steps of boosted trees."""
_NO_VALUES: Final = "the values of labels and predictions were not saved"
_MAX_TALLIES: Final = 4
"""Maximum number of label tensors that are counted, by mode."""


class ClassLabels(NamedTuple):
    """Labels of one worker that are classes [N].

    Attributes:
        is_wrong: Which of them are predicted incorrectly [N]; None without predictions.
        num_classes: Number of classes in the predictions; 0 if unknown.
        are_of_rows: Whether each row has one label, not one per pixel or word.
        weights: Weights of the rows [N]; None if they are equal.
        are_whole: Whether they have an integer type.
    """

    name: str
    worker: str
    classes: npt.NDArray[np.int64]
    is_wrong: npt.NDArray[np.bool_] | None
    num_classes: int
    are_of_rows: bool
    weights: npt.NDArray[np.float32] | None = None
    are_whole: bool = True

    @property
    def are_all(self) -> bool:
        """Whether they are the labels of the whole training data."""
        return self.name == TRAINING_LABELS

    def weighted_ratio(self, one: int, other: int) -> float:
        """Return the total weight of a class relative to another one's; infinite if unknown."""
        if self.weights is None:
            return math.inf
        total, others = (float(self.weights[self.classes == of].sum()) for of in (one, other))
        return total / others if others else math.inf


class ClassTallies:
    """Counts labels by class over the steps of a run.

    Args:
        memory: Its JSON state: `tallies` of at most 4 label tensors with at most 1,024 classes
            each; `latest`, a fingerprint of the latest labels of at most 256 workers.
    """

    def __init__(self, memory: Memory) -> None:
        self._tallies: dict[str, list[list[int]]] = memory.setdefault("tallies", {})
        self._latest: dict[str, int] = memory.setdefault("latest", {})

    def of(self, mode: ModeKeys, name: str) -> LabelTally:
        """Return the counts of a tensor of labels in a mode."""
        return LabelTally.read(self._tallies.get(f"{mode.name}/{name}"))

    def elsewhere(self, mode: ModeKeys, labels: ClassLabels) -> LabelTally | None:
        """Return the counts of the same labels in validation; None without modes.

        XGBoost saves all labels of validation beside all of training.
        """
        if labels.are_all:
            return self.of(mode, _VALIDATION_OF_TREES)
        return None if mode is ModeKeys.GLOBAL else self.of(ModeKeys.EVAL, labels.name)

    def are_of_validation(self, mode: ModeKeys, labels: ClassLabels) -> bool:
        """Return whether labels of a training step are those of validation."""
        is_of_trees = labels.name == _VALIDATION_OF_TREES
        return is_of_trees and bool(self.of(mode, TRAINING_LABELS).total)

    def add(self, mode: ModeKeys, found: Iterable[ClassLabels]) -> None:
        """Add the labels of a step; labels that repeat at the next step count once."""
        for labels in found:
            key = f"{mode.name}/{labels.name}"
            if key not in self._tallies and len(self._tallies) >= _MAX_TALLIES:
                continue
            is_new = not is_repeated(labels.classes, self._latest, f"{key}/{labels.worker}")
            tally = self.of(mode, labels.name).plus(labels.classes, labels.is_wrong, is_new=is_new)
            if len(tally.classes) <= MAX_CLASSES:
                self._tallies[key] = [column.tolist() for column in tally]


def class_labels(
    step: StepView,
    labels_regex: Iterable[str],
    predictions_regex: Iterable[str] = (),
    *,
    argmax: bool = False,
) -> tuple[list[ClassLabels], str]:
    """Return the class labels of a step, and why other labels are ignored.

    Labels and predictions are paired in name order. With `argmax`, the index of the largest number
    along the last axis is the class.
    """
    found = []
    reason = f"no labels named {', '.join(labels_regex)} were saved: save the collection labels"
    for worker in step.workers:
        labels, predictions = (_names(step, of, worker) for of in (labels_regex, predictions_regex))
        if predictions and labels and len(labels) != len(predictions):
            reason = f"{len(labels)} tensors of labels and {len(predictions)} of predictions were "
            reason += "saved: set labels_regex and predictions_regex to equal numbers of tensors"
            continue
        for name, predicted in zip(labels, predictions or [""] * len(labels), strict=False):
            names = {name, predicted} - {""}
            values = step.values(names, worker)
            if values.keys() != names:
                reason = f"{_NO_VALUES}: {step.how_to_save(names)}"
                continue
            try:
                found.append(_classes(name, predicted, worker, values, argmax=argmax))
            except ValueError as error:
                reason = f"{name}: {error}"
    return found, reason


def training_classes(step: StepView) -> list[ClassLabels]:
    """Return the classes of the whole training data, if this step saved them."""
    found = []
    for labels in training_labels(step)[1]:
        values = step.values((TRAINING_LABELS, TRAINING_WEIGHTS), labels.worker)
        if labels.is_whole and labels.is_single and TRAINING_LABELS in values:
            classes = true_classes(values[TRAINING_LABELS])
            weights = values.get(TRAINING_WEIGHTS)
            if weights is not None and len(weights) != len(classes):
                weights = None
            found.append(
                ClassLabels(TRAINING_LABELS, labels.worker, classes, None, 0, True, weights)  # noqa: FBT003
            )
    return found


def targets_of_classes(step: StepView) -> tuple[str, ...]:
    """Return regular expressions of the targets of losses with one class per row.

    No module input has fewer rows than these targets. So words of a text are excluded.
    """
    rows = [shape[0] for shape in step.tensors(regex=FIRST_INPUTS).shapes if shape]
    owners = {
        loss.owner
        for loss in step.fact(Losses).losses
        if loss.kind in (LossKind.CLASSES, LossKind.BINARY) and loss.targets is not None
        if loss.targets.size <= min(rows, default=0)
    }
    return tuple(f"^{re.escape(owner)}_input_1$" for owner in sorted(owners))


def _names(step: StepView, regex: Iterable[str], worker: str) -> list[str]:
    if not regex:
        return []
    rows = step.tensors(regex=regex)
    return sorted(n for n, of in zip(rows.names, rows.workers, strict=True) if of == worker)


def _classes(
    labels: str, predictions: str, worker: str, values: dict[str, npt.NDArray[Any]], *, argmax: bool
) -> ClassLabels:
    is_wrong, num_classes = None, 0
    if not predictions:
        classes = true_classes(values[labels])
    else:
        pairs = class_pairs(values[labels], values[predictions], argmax=argmax)
        num_classes = pairs.num_classes or int(pairs.predictions.max(initial=0)) + 1
        classes, is_wrong = pairs.labels, pairs.labels != pairs.predictions
    if not len(classes):
        raise ValueError("there is no label")
    if len(np.unique(classes)) > MAX_CLASSES:
        raise ValueError(f"there are more than {MAX_CLASSES} classes")
    are_of_rows = len(classes) <= len(np.atleast_1d(values[labels]))
    are_whole = values[labels].dtype.kind in "iub"
    of = (labels, worker, classes, is_wrong, num_classes, are_of_rows)
    return ClassLabels(*of, are_whole=are_whole)
