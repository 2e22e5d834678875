"""Columns of a batch, some at a time, and how their numbers change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "Flags", "are_usable", "blocks", "changes", "rounding"]

Columns = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_BLOCK: Final = 1 << 18
_HUGE: Final = 1e150
_ROUNDING: Final = 2.4e-7
_TINY: Final = 1e-12


def are_usable(values: npt.NDArray[Any]) -> Flags:
    """Tell which values are finite, and so are their differences.

    Args:
        values: Numbers [...].
    """
    finite: Flags = np.isfinite(values)
    if values.dtype.kind == "f" and values.dtype.itemsize >= np.dtype(np.float64).itemsize:
        finite &= (values < _HUGE) & (values > -_HUGE)
    return finite


def rounding(sizes: Columns, spread: Columns) -> Columns:
    """Return how far numbers differ at most that are the same, as float32 rounds them.

    Args:
        sizes: The greatest of the numbers that are compared, without their sign [..., C].
        spread: Greatest less least number of each column [C].
    """
    # No share of the spread that counts: one huge number must not make all others the same.
    close: Columns = _ROUNDING * sizes + _TINY * spread
    return close


def changes(values: Columns) -> tuple[Flags, Flags]:
    """Tell where columns rise and fall from one row to the next [B - 1, C], but for rounding.

    Args:
        values: The columns [B, C].
    """
    sizes = np.abs(values)
    close = rounding(np.maximum(sizes[1:], sizes[:-1]), np.ptp(values, axis=0))
    steps = np.diff(values, axis=0)
    return steps > close, steps < -close


def blocks(
    columns: npt.NDArray[Any], order: npt.NDArray[np.intp]
) -> Iterator[tuple[slice, Columns]]:
    """Yield some columns after the others, NaN where one has a number that is not finite.

    Args:
        columns: Columns [B, C].
        order: The order of their rows [B].

    Yields:
        Where the columns are, and the columns [B, c].
    """
    width = max(_BLOCK // len(columns), 1)
    for start in range(0, columns.shape[1], width):
        block = columns[order, start : start + width].astype(np.float64)
        yield slice(start, start + width), np.where(are_usable(block).all(0), block, np.nan)
