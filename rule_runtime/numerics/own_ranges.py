"""Columns in which the rows of a class have a range of numbers that no other row lies in.

Shape legend: B = rows, C = columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import Flags, blocks

__all__ = ["Range", "are_values", "own_ranges", "still_own"]

Range = list[float]
"""A column, the least and the greatest number of the class there, and the nearest of other rows
below and above; no text and no number is infinite: `_FAR` stands for none."""

_FAR: Final = 1e300
_MOST: Final = 16
_WHOLE: Final = "iu"


def own_ranges(columns: npt.NDArray[Any], own: Flags) -> list[Range]:
    """Return the range of a class in each column where no other row lies in it, 16 at most.

    Of more, those that are narrowest beside the gap to the nearest other row.

    Args:
        columns: Numbers [B, C]; of whole ones, which may be names, only a single value is a range.
        own: Which rows are of the class [B]; some are.
    """
    found: list[Range] = []
    widths: list[float] = []
    for at, block in blocks(columns, np.arange(len(columns))):
        low, high = block[own].min(0), block[own].max(0)
        below, above = _nearest(block[~own], low, high)
        is_own = np.isfinite(low) & (below < low) & (high < above)
        if columns.dtype.kind in _WHOLE:
            is_own &= low == high
        places = np.flatnonzero(is_own)
        gaps = np.minimum(low - below, above - high)[places]
        widths += ((high - low)[places] / gaps).tolist()
        ends = np.stack([at.start + places, *(of[places] for of in (low, high, below, above))])
        found += ends.T.tolist()
    order = sorted(range(len(found)), key=lambda row: (widths[row], found[row][0]))
    return sorted(found[row] for row in order[:_MOST])


def still_own(columns: npt.NDArray[Any], own: Flags, known: Sequence[Range]) -> list[Range]:
    """Return those ranges that a further batch leaves a class, as wide as it makes them.

    Args:
        columns: Numbers [B, C].
        own: Which rows are of the class [B].
        known: What `own_ranges` or this returned for the batch before.
    """
    names = [int(one[0]) for one in known]
    block = columns[:, names].astype(np.float64)
    ends = np.array(known, np.float64).T
    low = np.minimum(ends[1], block[own].min(0, initial=math.inf))
    high = np.maximum(ends[2], block[own].max(0, initial=-math.inf))
    below, above = _nearest(block[~own], low, high)
    below, above = np.maximum(below, ends[3]), np.minimum(above, ends[4])
    is_own = np.isfinite(block).all(0) & (below < low) & (high < above)
    if columns.dtype.kind in _WHOLE:
        is_own &= low == high
    found: list[Range] = np.stack([ends[0], low, high, below, above])[:, is_own].T.tolist()
    return found


def are_values(ranges: Sequence[Range]) -> bool:
    """Return whether a class has one value in any of its ranges.

    Args:
        ranges: Its ranges.
    """
    return any(one[1] == one[2] for one in ranges)


def _nearest(
    others: npt.NDArray[np.float64], low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the numbers of other rows [B, C] next to ranges; those within are at their ends."""
    below = np.where(others <= high, others, -_FAR).max(0, initial=-_FAR)
    above = np.where(others >= low, others, _FAR).min(0, initial=_FAR)
    return below, above
