"""Columns of a batch that tell classes: together, or each one by a wide gap."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import Columns, Flags, blocks, changes, rounding

__all__ = ["TOGETHER", "ClassColumns", "columns_of_classes", "may_count", "rows_shown"]

TOGETHER: Final = ""
"""Stands for all classes, where columns tell them together."""

_PAIR: Final = 2
_IN_RUNS: Final = 2
_MOST_OF_FREQUENT: Final = 4
_WHOLE: Final = "iu"
_KEPT_APART: Final = 0.8
_MOST_CLASSES: Final = 32
_FEWEST_OF_CLASS: Final = 4
_FEWEST_OF_TWO: Final = 8
_FEWEST_COLUMNS: Final = 8
_MOST_PARTING: Final = 2
_NEARLY_PARTING: Final = 0.25


class ClassColumns(NamedTuple):
    """Which columns tell classes.

    Attributes:
        columns: Numbers of columns by the class that they part, as text, or for `TOGETHER`.
        alone: Those that tell all classes alone.
    """

    columns: dict[str, npt.NDArray[np.intp]]
    alone: npt.NDArray[np.intp]


def may_count(of_rows: npt.NDArray[Any]) -> Flags:
    """Tell which rows may show that classes are told [B]; none if they lie class by class.

    Where the class changes less than half as often as in a random order, only changes count.

    Args:
        of_rows: The class of each row [B].
    """
    counts = np.unique(of_rows, return_counts=True)[1]
    is_change = np.concatenate([[False], of_rows[1:] != of_rows[:-1]])
    if is_change.sum() < len(counts):
        return np.zeros(len(of_rows), np.bool_)
    by_chance = len(of_rows) - np.square(counts).sum() / len(of_rows)
    # The rows of a run are one state that lasts, and what is right once in it is right throughout.
    return np.asarray(is_change | (_IN_RUNS * is_change.sum() >= by_chance), np.bool_)


def rows_shown(classes: npt.NDArray[np.intp], order: npt.NDArray[np.intp], is_new: Flags) -> int:
    """Return how many rows show that classes are told; none if rows lie class by class.

    Where the class changes less than half as often as in a random order, only changes count.

    Args:
        classes: The class of each row in this order, 0 to K - 1 [B].
        order: The order of rows in which those of a class follow each other [B].
        is_new: Which rows count [B].
    """
    of_rows = np.empty_like(classes)
    of_rows[order] = classes
    turns = int(np.count_nonzero(np.diff(of_rows)))
    if turns <= classes[-1]:
        return 0
    counts = np.bincount(of_rows[is_new], minlength=1)
    most = int(counts.max())
    # The first row of a class shows nothing: whatever it holds could stand for the class.
    others = int(np.maximum(counts - 1, 0).sum()) - max(most - 1, 0)
    shown = others + min(max(most - 1, 0), _MOST_OF_FREQUENT * others)
    by_chance = len(of_rows) - np.square(np.bincount(of_rows)).sum() / len(of_rows)
    # The rows of a run are one state that lasts, and what is right once in it is right throughout.
    return min(shown, turns) if _IN_RUNS * turns < by_chance else shown


def columns_of_classes(
    columns: npt.NDArray[Any],
    order: npt.NDArray[np.intp],
    classes: npt.NDArray[np.intp],
    *,
    is_again: bool = False,
    may_part: bool = False,
) -> ClassColumns | None:
    """Return which columns tell classes together, or part each of them by a gap; none if they lack.

    Args:
        columns: The columns [B, C].
        order: The order of rows in which those of a class follow each other [B].
        classes: The class of each row in this order, 0 to K - 1 [B].
        is_again: Whether they told them before: then four fifths of the classes must differ, and a
            column need not vary.
        may_part: Whether a gap counts; those of whole numbers do not, for they may be names.

    Returns:
        None if too few rows are of the classes to look for gaps, and no columns tell them together.
    """
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    may_part &= columns.shape[1] >= _FEWEST_COLUMNS and len(counts) <= _MOST_CLASSES
    may_part &= columns.dtype.kind not in _WHOLE
    judged = _judged(counts) if may_part else np.empty(0, np.intp)
    same = np.zeros(columns.shape[1], np.bool_)
    parting = np.zeros((len(judged), columns.shape[1]), np.bool_)
    num_parting = np.zeros(len(judged), np.intp)
    for at, block in blocks(columns, order):
        low, high = np.minimum.reduceat(block, starts), np.maximum.reduceat(block, starts)
        spread = high.max(0) - low.min(0)
        close = rounding(np.maximum(np.abs(low), np.abs(high)), spread)
        same[at] = (high - low <= close).all(0) & (is_again | (spread > close.max(0)))
        for row, one in enumerate(judged):
            widths = _widths_of_gaps(low, high, int(one))
            parting[row, at] = widths > 1
            num_parting[row] += np.count_nonzero(widths > _NEARLY_PARTING)
    first = columns[order[starts]][:, same].astype(np.float64)
    num_apart = len(np.unique(first, axis=0)) if same.any() else 0
    fewest = math.ceil((_KEPT_APART if is_again else 1) * len(counts))
    if num_apart >= fewest:
        is_alone = changes(np.sort(first, axis=0))[0].sum(0) + 1 >= fewest
        return ClassColumns({TOGETHER: np.flatnonzero(same)}, np.flatnonzero(same)[is_alone])
    if may_part and not len(judged):
        return None
    none = np.empty(0, np.intp)
    # Where many columns part a class, it lies far from the others, and no column stands out.
    if not parting.any(1).all() or not len(judged) or (num_parting > _MOST_PARTING).any():
        return ClassColumns({TOGETHER: none}, none)
    parted = {str(one): np.flatnonzero(parting[row]) for row, one in enumerate(judged)}
    return ClassColumns(parted, np.flatnonzero(parting.all(0)))


def _judged(counts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the classes of so many rows that gaps count; none if these are too few classes."""
    num_rows = counts.sum()
    judged = np.flatnonzero((counts >= _FEWEST_OF_CLASS) & (num_rows - counts >= counts))
    is_pair = len(counts) == _PAIR and counts.min() >= _FEWEST_OF_TWO
    return judged if is_pair or 2 * len(judged) >= len(counts) > _PAIR else judged[:0]


def _widths_of_gaps(low: Columns, high: Columns, at: int) -> Columns:
    """Return how wide the gap is between a class and the others [C], by the wider of both sides.

    Args:
        low: The least number of each class [K, C].
        high: The greatest number of each class [K, C].
        at: The class.
    """
    rest_low, rest_high = (np.delete(ends, at, axis=0) for ends in (low, high))
    below, above = rest_low.min(0), rest_high.max(0)
    gap = np.maximum(low[at] - above, below - high[at])
    side = np.maximum(high[at] - low[at], above - below)
    widths: Columns = np.divide(gap, side, out=np.full_like(gap, math.inf), where=side > 0)
    return np.where(gap > 0, widths, 0)
