"""Targets that stand in a text that a model is given: at their own place, or one further on."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["are_masked", "are_next", "are_seen", "is_source"]

_TABLE: Final = 2
_FEWEST_PLACES: Final = 32
_FEWEST_NEXT: Final = 16


def are_next(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets are what comes next in a sequence, where that is seen.

    Args:
        values: Whole numbers [B, L]; None for none.
        targets: Whole numbers, equal to values[:, 1:] in 16 places or more that are not all the
            same: [B, L] or [B L], of which the last ones may be anything, or [B, L - 1] or
            [B (L - 1)]. They may be negative, where nothing is asked, at the end of rows: what is
            asked behind a part that is not asked may follow from that part.
    """
    if values is None or targets is None or not _is_text(values, targets):
        return False
    num_rows, length = values.shape
    if targets.size == values.size:
        following = targets.reshape(num_rows, length)[:, :-1]
    elif targets.size == num_rows * (length - 1):
        following = targets.reshape(num_rows, length - 1)
    else:
        return False
    asked = following >= 0
    answers = following[asked]
    if (asked[:, 1:] & ~asked[:, :-1]).any():
        return False
    if len(answers) < _FEWEST_NEXT or (answers == answers[0]).all():
        return False
    return np.array_equal(values[:, 1:][asked], answers)


def are_seen(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets stand in a sequence, each at its own place, wherever one is asked.

    Args:
        values: Whole numbers [B, L]; None for none.
        targets: Whole numbers [B, L] or [B L], negative where nothing is asked.
    """
    if values is None or targets is None or not _are_texts(values, targets):
        return False
    asked = targets.reshape(-1) >= 0
    answers = targets.reshape(-1)[asked]
    if len(answers) < _FEWEST_PLACES or (answers == answers[0]).all():
        return False
    return np.array_equal(values.reshape(-1)[asked], answers)


def are_masked(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Tell whether what is asked at some places stands at others as well, which are no padding.

    Half of all different answers must.

    Args:
        values: Whole numbers [B, L].
        targets: Whole numbers [B, L] or [B L], negative where nothing is asked.
    """
    asked = targets.reshape(values.shape) >= 0
    is_shown = np.isin(np.unique(values[asked]), values[~asked])
    return bool(2 * is_shown.sum() >= len(is_shown) > 0)


def is_source(
    other: npt.NDArray[Any] | None, values: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> bool:
    """Tell whether another input may be what a text is translated from.

    Args:
        other: Whole numbers [B, ...]; None if they were not saved.
        values: The text [B, L].
        targets: What is asked [B, L], [B L] or less.

    Returns:
        False for masks of 0 and 1, numbers that all rows share, as of places, and the text or the
        targets once more, whatever is negative in them.
    """
    if other is None:
        return True
    if other.ndim < _TABLE or not other.size or other.max() <= 1 or (other == other[:1]).all():
        return False
    flat = other.reshape(-1)
    for own in (values.reshape(-1), targets.reshape(-1)):
        if own.size == flat.size and (own == flat)[(own >= 0) & (flat >= 0)].all():
            return False
    return True


def _is_text(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Tell whether there are whole numbers [B, L] with L > 1, and whole numbers as targets."""
    if not values.size or values.ndim != _TABLE or values.shape[1] <= 1:
        return False
    return values.dtype.kind in "iu" and targets.dtype.kind in "iu"


def _are_texts(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Tell whether there are whole numbers [B, L] with L > 1, and a target for each."""
    return values.size == targets.size and _is_text(values, targets)
