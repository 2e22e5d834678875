"""Cross entropies of classes that are not of all rows, or not over the classes.

Shape legend: B = rows, C = classes, ... = places.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["classes_left_out", "other_axis"]

_Numbers = npt.NDArray[np.float64]
_MOST_ELEMENTS: Final = 1 << 20
_FEWEST: Final = 8
_EXACT: Final = 3e-6
_TELLING: Final = 2e-3
_MATRIX: Final = 2


def other_axis(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> tuple[int, int] | None:
    """Return along which axis a softmax was taken, and along which the classes are.

    Args:
        scores: Scores [B, C, ...] or [B, ..., C].
        targets: Numbers of classes [B, ...].
        loss: The loss.

    Returns:
        None if the loss is no mean of logarithms of such a softmax, or nearly the right one.
    """
    shape = scores.shape
    if not 0 < scores.size <= _MOST_ELEMENTS or scores.dtype.kind != "f" or not targets.size:
        return None
    if targets.dtype.kind not in "iu" or not (np.isfinite(scores).all() and math.isfinite(loss)):
        return None
    for classes in sorted({1, scores.ndim - 1} & set(range(scores.ndim))):
        if shape[:classes] + shape[classes + 1 :] != targets.shape:
            continue
        if targets.min() < 0 or targets.max() >= shape[classes]:
            continue
        losses = [_mean_loss(scores, targets, classes, axis) for axis in range(scores.ndim)]
        for axis, found in enumerate(losses):
            is_telling = abs(found - losses[classes]) > _TELLING * abs(losses[classes])
            if is_telling and shape[axis] > 1 and math.isclose(found, loss, rel_tol=_EXACT):
                return axis, classes
    return None


def _mean_loss(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any], classes: int, axis: int
) -> float:
    logarithms = _logarithms(scores.astype(np.float64), axis)
    own = np.take_along_axis(logarithms, np.expand_dims(targets, classes).astype(np.int64), classes)
    return -float(own.mean())


def _logarithms(scores: _Numbers, axis: int) -> _Numbers:
    apart = scores - scores.max(axis=axis, keepdims=True)
    found: _Numbers = apart - np.log(np.exp(apart).sum(axis=axis, keepdims=True))
    return found


def classes_left_out(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> list[int] | None:
    """Return classes that occur, and whose rows a cross entropy leaves out.

    It is the mean of that of all other rows; that of all differs. A single class is known again at
    any time, several by being the least likely ones, as they are if nobody asks for them.

    Args:
        scores: Scores of classes [B, C], or their logarithms.
        targets: Numbers of classes [B].
        loss: The loss.

    Returns:
        None if none is left out, or the loss is no such mean.
    """
    if not math.isfinite(loss) or not _are_classes(scores, targets):
        return None
    o, classes = scores.astype(np.float64), targets.astype(np.int64)
    logarithms = _logarithms(o, 1)
    losses = -logarithms[np.arange(len(o)), classes]
    if abs(losses.mean() - loss) <= _TELLING * abs(loss):
        return None
    present = np.unique(classes)
    least_likely = present[np.argsort(logarithms.mean(axis=0)[present])]
    every = [[int(one)] for one in present]
    every += [sorted(map(int, least_likely[:most])) for most in range(_MATRIX, len(present))]
    for left_out in every:
        kept = losses[~np.isin(classes, left_out)]
        if len(kept) and math.isclose(float(kept.mean()), loss, rel_tol=_EXACT):
            return left_out
    return None


def _are_classes(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    if scores.ndim != _MATRIX or targets.shape != scores.shape[:1]:
        return False
    if targets.dtype.kind not in "iu" or scores.dtype.kind != "f":
        return False
    if not _FEWEST <= targets.size <= scores.size <= _MOST_ELEMENTS:
        return False
    return bool(
        np.isfinite(scores).all() and targets.min() >= 0 and targets.max() < scores.shape[1]
    )
