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
    """Return whether targets are what comes next in a sequence, where that is seen.

    Args:
        values: Whole numbers [B, L]; None for none.
        targets: Whole numbers, equal to values[:, 1:] in 16 places or more, of which no more than
            half are the same, as of padding: [B, L] or [B L], of which the last ones may be
            anything, or [B, L - 1] or [B (L - 1)]. They may be negative, where nothing is asked,
            at the end of rows: what is asked behind a part that is not asked may follow from it.
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
    if len(answers) < _FEWEST_NEXT or not np.array_equal(values[:, 1:][asked], answers):
        return False
    return bool(2 * np.unique(answers, return_counts=True)[1].max() <= len(answers))


def are_seen(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Return whether targets stand in a sequence, each at its own place, wherever one is asked.

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
    """Return whether what is asked at some places stands at others as well, which are no padding.

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
    """Return whether a text may follow from another input, as from what it is translated from.

    Args:
        other: Numbers [B, ...], or more rows than that; None if they were not saved.
        values: The text [B, L].
        targets: What is asked [B, L], [B L] or less.

    Returns:
        False for what a quarter of the rows or more share with others of another text, as numbers
        of places or of an author; for masks [..., L] of two values; for what has a row for each
        place, or less than one for each text, as states of layers; and for the text or the targets
        once more, whatever is negative in them.
    """
    if other is None:
        return True
    num_rows, length = values.shape
    if not other.size or not other.ndim or len(other) < num_rows:
        return False
    flat = other.reshape(-1)
    for own in (values.reshape(-1), targets.reshape(-1)):
        is_text = own.size == flat.size and other.dtype.kind in "iu"
        if is_text and (own == flat)[(own >= 0) & (flat >= 0)].all():
            return False
    if len(other) != num_rows:
        return bool(len(other) != length)
    has_places = other.ndim >= _TABLE and other.shape[-1] == length
    if has_places and ((other == other.min()) | (other == other.max())).all():
        return False
    first: dict[bytes, int] = {}
    rows = [first.setdefault(row.tobytes(), at) for at, row in enumerate(other)]
    is_other = (values != values[rows]).any(1)
    return bool(4 * is_other.sum() < num_rows)


def _is_text(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Return whether there are whole numbers [B, L] with L > 1, and whole numbers as targets."""
    if not values.size or values.ndim != _TABLE or values.shape[1] <= 1:
        return False
    return values.dtype.kind in "iu" and targets.dtype.kind in "iu"


def _are_texts(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Return whether there are whole numbers [B, L] with L > 1, and a target for each."""
    return values.size == targets.size and _is_text(values, targets)
