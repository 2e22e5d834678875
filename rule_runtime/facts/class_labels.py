"""Classes of a step's labels, and which of them are predicted wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.class_pairs import class_pairs, true_classes

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ClassLabels", "class_labels"]


class ClassLabels(NamedTuple):
    """Labels of one worker that are classes [N].

    Attributes:
        name: Name of the tensor of labels.
        worker: The worker.
        classes: The classes [N].
        is_wrong: Which of them are predicted wrongly [N]; None without predictions.
        num_classes: How many classes the predictions have; 0 if unknown.
    """

    name: str
    worker: str
    classes: npt.NDArray[np.int64]
    is_wrong: npt.NDArray[np.bool_] | None
    num_classes: int


def class_labels(
    step: StepView,
    labels_regex: tuple[str, ...],
    predictions_regex: tuple[str, ...],
    *,
    argmax: bool,
) -> tuple[list[ClassLabels], str]:
    """Return the labels of a step that are classes, and why others are left out.

    Labels and predictions are paired in the order of their names.

    Args:
        step: The step.
        labels_regex: Regular expressions of labels.
        predictions_regex: Regular expressions of predictions.
        argmax: Whether the largest number along the last axis is the class.
    """
    found = []
    reason = f"no labels were saved, tensors named as {', '.join(labels_regex)}"
    for worker in step.workers:
        labels, predictions = (
            _names(step, regex, worker) for regex in (labels_regex, predictions_regex)
        )
        if predictions and labels and len(labels) != len(predictions):
            reason = f"{len(labels)} tensors of labels and {len(predictions)} of predictions were "
            reason += "saved, which makes no pairs"
            continue
        for name, beside in zip(labels, predictions or [""] * len(labels), strict=False):
            values = step.values({name, beside} - {""}, worker)
            try:
                found.append(_classes(name, beside, worker, values, argmax=argmax))
            except ValueError as error:
                reason = f"{name}: {error}"
    return found, reason


def _names(step: StepView, regex: tuple[str, ...], worker: str) -> list[str]:
    rows = step.tensors(regex=regex)
    return sorted(n for n, of in zip(rows.names, rows.workers, strict=True) if of == worker)


def _classes(
    labels: str, predictions: str, worker: str, values: dict[str, npt.NDArray[Any]], *, argmax: bool
) -> ClassLabels:
    if labels not in values or (predictions and predictions not in values):
        raise ValueError("the values of labels and predictions were not saved")
    if not predictions:
        found = ClassLabels(labels, worker, true_classes(values[labels]), None, 0)
    else:
        pairs = class_pairs(values[labels], values[predictions], argmax=argmax)
        num_classes = pairs.num_classes or int(pairs.predictions.max(initial=0)) + 1
        is_wrong = pairs.labels != pairs.predictions
        found = ClassLabels(labels, worker, pairs.labels, is_wrong, num_classes)
    if not len(found.classes):
        raise ValueError("there is no label")
    return found
