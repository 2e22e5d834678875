"""Detects class scores that a loss reads along the wrong dimension, or in the wrong order.

Shape legend: B = rows, C = classes, ... = places.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["are_scrambled", "normalised_axis"]

_CLASSES: Final = 1
_CLOSE: Final = 1e-3
"""Error of a sum of probabilities."""
_FAR: Final = 0.01
"""Distance from 1 of a sum that is none of probabilities."""
_SEQUENCE: Final = 3
_ROUNDING: Final = 1e-4
"""Error of scores, relative to the largest."""


def normalised_axis(outputs: npt.NDArray[Any]) -> int | None:
    """Return the dimension along which probabilities or their logarithms sum to 1.

    Args:
        outputs: What a loss of classes gets [B, C, ...].

    Returns:
        None if they sum to 1 along dimension 1, that of the classes, or along none.
    """
    if outputs.ndim <= _CLASSES or outputs.dtype.kind != "f" or not outputs.size:
        return None
    with np.errstate(over="ignore"):
        shares = np.exp(outputs, dtype=np.float64) if outputs.min() < 0 else outputs
    if not np.isfinite(outputs).all() or shares.max() > 1 + _CLOSE:
        return None
    far = [
        float(np.abs(shares.sum(axis, dtype=np.float64) - 1).max()) for axis in range(shares.ndim)
    ]
    found = [axis for axis, apart in enumerate(far) if apart < _CLOSE and shares.shape[axis] > 1]
    return found[0] if found and far[_CLASSES] > _FAR else None


def are_scrambled(written: npt.NDArray[Any], read: npt.NDArray[Any]) -> bool:
    """Return whether a reshape mixed classes and places: `view` instead of `transpose`.

    Each vector over the classes that the loss reads must be one that the model wrote, along a
    dimension of C elements or a part of a longer one.

    Args:
        written: What the model returned, three dimensions or more.
        read: The same elements, as the loss gets them [B, C] or [B, C, ...].
    """
    if written.ndim < _SEQUENCE or read.ndim <= _CLASSES or written.shape == read.shape:
        return False
    classes = read.shape[_CLASSES]
    if classes not in written.shape or not np.isfinite(written).all():
        return False
    if not _are_equal(read.reshape(-1), written.reshape(-1)):
        return False
    parts = [
        (axis + 1, written.reshape(*written.shape[:axis], -1, classes, *written.shape[axis + 1 :]))
        for axis, size in enumerate(written.shape)
        if size % classes == 0
    ]
    own = _projected(read, _CLASSES)
    return not any(_are_equal(own, _projected(part, axis)) for axis, part in parts)


def _projected(scores: npt.NDArray[Any], axis: int) -> npt.NDArray[np.float64]:
    """Return a number for each vector along a dimension, which differs where the vectors do."""
    weights = np.cos(np.arange(scores.shape[axis], dtype=np.float64))
    return np.tensordot(np.moveaxis(scores, axis, -1).astype(np.float64), weights, 1).ravel()


def _are_equal(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Return whether two arrays have the same numbers, in whatever order."""
    if some.size != others.size:  # only the first rows of one of them are stored
        return False
    a, b = np.sort(some.astype(np.float64)), np.sort(others.astype(np.float64))
    return bool(np.abs(a - b).max(initial=0) <= _ROUNDING * np.abs(b).max(initial=0))
