"""Targets that stand in a text that a model is given: at their own place, or one further on."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["are_masked", "are_next", "are_seen"]

_TABLE: Final = 2
_FEWEST_PLACES: Final = 32


def are_next(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets are what comes next in a sequence, where that is seen.

    Args:
        values: Whole numbers [B, L], of which not all are the same; None for none.
        targets: Whole numbers [B, L] or [B L], equal to values[:, 1:] but for the last ones.
    """
    if values is None or targets is None or not _are_texts(values, targets):
        return False
    is_moved = np.array_equal(values[:, 1:], targets.reshape(values.shape)[:, :-1])
    return bool(is_moved and (values != values.flat[0]).any())


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


def _are_texts(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Tell whether there are whole numbers [B, L] with L > 1, and a target for each."""
    if values.size != targets.size or not values.size or values.ndim != _TABLE:
        return False
    return values.dtype.kind in "iu" and targets.dtype.kind in "iu" and values.shape[1] > 1
