"""Columns of a batch that tell its targets exactly: the targets themselves, in some form."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["are_next", "as_columns", "as_targets", "telling_columns"]

_MOST_ELEMENTS: Final = 1 << 22
_FEWEST_ROWS: Final = 8
_CLOSE: Final = 1e-6
_MATRIX: Final = 2
_ROUNDED: Final = 0.02


def as_targets(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return one finite number for each row [B]; None if targets are something else.

    Args:
        values: Targets [B], [B, 1] or one-hot [B, K].
    """
    if values.dtype.kind not in "biuf" or not values.ndim or len(values) < _FEWEST_ROWS:
        return None
    flat: npt.NDArray[np.float64] = values.reshape(len(values), -1).astype(np.float64)
    if flat.shape[1] != 1:
        is_one_hot = ((flat == 0) | (flat == 1)).all() and (flat.sum(1) == 1).all()
        if values.ndim != _MATRIX or not is_one_hot:
            return None
        return np.asarray(flat.argmax(1), np.float64)
    numbers: npt.NDArray[np.float64] = flat[:, 0]
    return numbers if np.isfinite(numbers).all() else None


def as_columns(values: npt.NDArray[Any], num_rows: int) -> npt.NDArray[np.float64] | None:
    """Return an input as columns [B, C], None if it has only one, or other rows than the targets.

    None as well if it has more than 4 million elements, for the memory that they would take.

    Args:
        values: The input [B, ...].
        num_rows: B.
    """
    if values.dtype.kind not in "biuf" or values.ndim < _MATRIX or len(values) != num_rows:
        return None
    if not num_rows < values.size <= _MOST_ELEMENTS:
        return None
    return values.reshape(num_rows, -1).astype(np.float64)


def telling_columns(
    columns: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which columns [C] tell the targets, and how many rows show that it is no chance.

    With more than half as many different targets as rows, those columns do that rise, or fall,
    wherever the targets rise (but for 2 % of the rows, for rounding); all rows show it. With fewer,
    those that are the same wherever the targets are, if together they differ wherever the targets
    do; rows show it that have the target of another. Nothing does if all targets are equal.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B], finite.
    """
    is_finite = np.isfinite(columns).all(0)
    order = np.argsort(targets, kind="stable")
    ordered = np.where(is_finite, columns, 0.0)[order]
    steps = np.diff(targets[order]) > _CLOSE * float(np.ptp(targets))
    changes, close = np.diff(ordered, axis=0), _CLOSE * np.abs(ordered).max(0)
    rises, falls = changes > close, changes < -close
    num_distinct = int(steps.sum()) + 1
    nothing = np.zeros(columns.shape[1], np.bool_)
    if num_distinct == 1 or len(targets) < _FEWEST_ROWS:
        return nothing, 0
    if 2 * num_distinct > len(targets):
        told = is_finite & (_follow(rises, falls, steps) | _follow(falls, rises, steps))
        return told, len(targets)
    told = is_finite & ~(rises | falls)[~steps].any(0) & (rises | falls).any(0)
    # Of rows with equal targets the first stands for all.
    first = ordered[np.concatenate([[True], steps])][:, told]
    is_enough = bool(told.any()) and len(np.unique(first, axis=0)) == num_distinct
    return told if is_enough else nothing, len(targets) - num_distinct


def _follow(
    with_it: npt.NDArray[np.bool_], against: npt.NDArray[np.bool_], steps: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which columns [C] never go against the steps [B - 1], and hardly ever stand still."""
    differs = (with_it != steps[:, None]).sum(0)
    follows: npt.NDArray[np.bool_] = ~against.any(0) & (differs <= _ROUNDED * len(steps))
    return follows


def are_next(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets are what comes next in a sequence, where that is seen.

    Args:
        values: Whole numbers [B, L], of which not all are the same; None for none.
        targets: Whole numbers [B, L] or [B L], equal to values[:, 1:] but for the last ones.
    """
    if values is None or targets is None or values.size != targets.size:
        return False
    is_whole = values.dtype.kind in "iu" and targets.dtype.kind in "iu"
    if not is_whole or values.ndim != _MATRIX or values.shape[1] < _MATRIX:
        return False
    is_moved = np.array_equal(values[:, 1:], targets.reshape(values.shape)[:, :-1])
    return bool(is_moved and (values != values.flat[0]).any())
