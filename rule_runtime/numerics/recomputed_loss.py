"""Losses of numbers, known again by what they are of outputs and targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["best_constant"]

_Errors = npt.NDArray[np.float64]
_MOST_ELEMENTS: Final = 1 << 18
_CLOSE: Final = 1e-4
_NUM_HALVINGS: Final = 40
_THIRD: Final = 1 / 3


def _huber(errors: _Errors) -> _Errors:
    sizes = np.abs(errors)
    return np.where(sizes < 1, errors**2 / 2, sizes - 0.5)


_FORMS: Final[tuple[Callable[[_Errors], _Errors], ...]] = (np.square, np.abs, _huber)


def best_constant(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float | None:
    """Return what the best single number for all outputs gives; None if the loss is not known.

    Known are means of squares, of distances and of what HuberLoss and SmoothL1Loss are of by their
    defaults, half of them, their sums over a row, and roots of mean squares.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets [B, ...], as many.
        loss: The loss.
    """
    if outputs.size != targets.size or not 1 < targets.size <= _MOST_ELEMENTS:
        return None
    if outputs.dtype.kind not in "fiu" or targets.dtype.kind not in "fiu":
        return None
    numbers = targets.astype(np.float64).reshape(-1)
    errors = outputs.astype(np.float64).reshape(-1) - numbers
    in_row = targets.size / max(len(targets), 1)
    for form in _FORMS:
        mean = float(form(errors).mean())
        for factor in (1.0, 0.5, in_row, in_row / 2):
            if math.isclose(factor * mean, loss, rel_tol=_CLOSE):
                return factor * _smallest(form, numbers)
    if math.isclose(math.sqrt(float(np.square(errors).mean())), loss, rel_tol=_CLOSE):
        return float(numbers.std())
    return None


def _smallest(form: Callable[[_Errors], _Errors], numbers: _Errors) -> float:
    """Return the smallest mean of a convex function of the distances to one number."""
    low, high = float(numbers.min()), float(numbers.max())
    for _ in range(_NUM_HALVINGS):
        third = (high - low) * _THIRD
        a, b = low + third, high - third
        if form(numbers - a).mean() <= form(numbers - b).mean():
            high = b
        else:
            low = a
    return float(form(numbers - (low + high) / 2).mean())
