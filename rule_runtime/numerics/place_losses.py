"""Losses of each place of a text, and whether all but the last are foreseen.

Shape legend: B = rows, L = places, V = words.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["are_foreseen", "losses_of_places"]

_TEXTS: Final = 3
_TABLE: Final = 2
_MOST_ELEMENTS: Final = 1 << 24
_FEWEST_ROWS: Final = 8
_FEWEST_PLACES: Final = 8
_JUST_BEFORE: Final = 4
_TIMES_AS_LARGE: Final = 1.5
_DEVIATIONS: Final = 4.0


def losses_of_places(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any], shape: tuple[int, int]
) -> npt.NDArray[np.float64] | None:
    """Return the cross entropy of each place [B, L]; None if these are no scores of its words.

    Args:
        scores: Scores or logarithms of probabilities, [B, L, V], [B, V, L] or [B L, V].
        targets: Whole numbers from 0 on, [B, L] or [B L].
        shape: B and L.
    """
    if scores.size > _MOST_ELEMENTS or scores.dtype.kind != "f" or not np.isfinite(scores).all():
        return None
    rows, length = shape
    if scores.ndim == _TABLE and len(scores) == rows * length:
        table = scores
    elif scores.ndim == _TEXTS and scores.shape[:2] == shape:
        table = scores.reshape(rows * length, -1)
    elif scores.ndim == _TEXTS and (scores.shape[0], scores.shape[2]) == shape:
        table = scores.transpose(0, 2, 1).reshape(rows * length, -1)
    else:
        return None
    answers = targets.reshape(-1)
    if answers.min() < 0 or answers.max() >= table.shape[1]:
        return None
    numbers = table.astype(np.float64)
    numbers -= numbers.max(1, keepdims=True)
    chosen = numbers[np.arange(len(numbers)), answers]
    return np.asarray((np.log(np.exp(numbers).sum(1)) - chosen).reshape(shape), np.float64)


def are_foreseen(losses: npt.NDArray[np.float64]) -> bool:
    """Return whether all places but the last are known much better than it, beyond chance.

    Where the targets are the text moved by one place, that of the last place alone does not stand
    in the text: a model that may not look ahead knows it as well as those before, or better.

    Args:
        losses: The loss of each place [B, L].
    """
    rows, length = losses.shape
    if rows < _FEWEST_ROWS or length < _FEWEST_PLACES:
        return False
    last, others = losses[:, -1], losses[:, :-1]
    if last.mean() <= _TIMES_AS_LARGE * max(others.mean(), others[:, -_JUST_BEFORE:].mean()):
        return False
    apart = last - others.mean(1)
    return bool(apart.mean() * math.sqrt(rows) > _DEVIATIONS * apart.std(ddof=1))
