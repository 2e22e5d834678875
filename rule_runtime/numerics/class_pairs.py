"""Extracts true and predicted classes from labels and predictions in usual formats.

Shape legend: N = examples, K = classes.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ClassPairs", "class_axis", "class_pairs", "is_one_hot", "true_classes"]

_LARGEST_CLASS: Final = (1 << 31) - 1


class ClassPairs(NamedTuple):
    """The classes of some examples.

    Attributes:
        labels: True classes [N], integers from 0.
        predictions: Predicted classes [N].
        num_classes: The length of the class axis of predictions; 2 for probabilities; None if
            predictions are classes.
    """

    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    num_classes: int | None


def true_classes(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the classes of labels [N]: numbers, or one-hot rows.

    Negative labels, which mark ignored examples, and non-finite labels are omitted.

    Raises:
        ValueError: If they are not classes.
    """
    values = _numbers("labels", labels)
    if is_one_hot(values):
        return _classes("labels", values.argmax(axis=-1).reshape(-1))
    values = values.reshape(-1)
    return _classes("labels", values[np.isfinite(values) & (values >= 0)])


def class_axis(labels: tuple[int, ...], scores: tuple[int, ...]) -> int | None:
    """Return the axis, second or last, that scores have in addition to labels; None without it."""
    last = len(scores) - 1
    for axis in (1, last):
        if 0 < axis <= last and scores[:axis] + scores[axis + 1 :] == labels:
            return axis
    return last if last > 0 and labels == (math.prod(scores[:-1]),) else None


def class_pairs(
    labels: npt.NDArray[Any], predictions: npt.NDArray[Any], *, argmax: bool = False
) -> ClassPairs:
    """Return the true and predicted class of each example.

    Predictions can be classes, probabilities of the second of two classes (predicted from 0.5),
    scores with an additional axis (second or last), or arrays in the shape of one-hot labels. With
    `argmax`, the class is always the index of the largest number along the last axis of
    predictions, and of labels of the same shape. Examples with a negative label or a non-finite
    number are omitted. Labels are as in `true_classes`.

    Raises:
        ValueError: If their shapes do not match, or they are not classes.
    """
    true = _without_last_axis_of_one(_numbers("labels", labels))
    predicted = _without_last_axis_of_one(_numbers("predictions", predictions))
    is_same_shape = true.shape == predicted.shape and true.ndim > 1
    if is_same_shape and (argmax or is_one_hot(true)):
        known = np.isfinite(true).all(axis=-1)
        true = np.where(known, true.argmax(axis=-1), -1)
    axis = class_axis(true.shape, predicted.shape) if predicted.size else None
    num_classes = None if axis is None else predicted.shape[axis]
    if axis is not None:
        is_finite = np.isfinite(predicted).all(axis=axis)
        predicted = np.where(is_finite, predicted.argmax(axis=axis), np.nan)
    if true.size != predicted.size:
        raise ValueError(
            f"labels of shape {labels.shape} do not fit predictions of shape {predictions.shape}"
        )
    true, predicted = true.reshape(-1), predicted.reshape(-1)
    is_known = np.isfinite(true) & np.isfinite(predicted) & (true >= 0)
    true, predicted = _classes("labels", true[is_known]), predicted[is_known]
    if num_classes is None and (predicted != np.floor(predicted)).any():
        if predicted.min() < 0 or predicted.max() > 1 or true.max(initial=0) > 1:
            raise ValueError("predictions are neither classes nor probabilities of two classes")
        predicted, num_classes = 2 * predicted >= 1, 2
    return ClassPairs(true, _classes("predictions", predicted), num_classes)


def _without_last_axis_of_one(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array


def is_one_hot(values: npt.NDArray[Any]) -> bool:
    """Return whether rows along the last axis are one-hot."""
    if values.ndim < 2 or values.shape[-1] < 2 or not values.size:  # noqa: PLR2004
        return False
    is_bit = (values == 0) | (values == 1)
    return bool(is_bit.all() and (values.sum(axis=-1) == 1).all())


def _numbers(what: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} of type {array.dtype} are not classes")
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _classes(what: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    is_class = (values >= 0) & (values <= _LARGEST_CLASS) & (values == np.floor(values))
    if not is_class.all():
        raise ValueError(f"{what} are not classes: {values[~is_class][0]:g} is among them")
    return values.astype(np.int64)
