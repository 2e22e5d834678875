"""Columns of a batch that tell classes: together, each one, or all but for a few rows."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import Columns, Flags, blocks, changes, rounding

__all__ = ["TOGETHER", "agreeing_columns", "columns_of_classes", "rows_shown"]

TOGETHER: Final = ""
"""Stands for all classes, where columns tell them together."""

_PAIR: Final = 2
_MOST_OF_FREQUENT: Final = 4
_KEPT_APART: Final = 0.8
_AGREEING: Final = 0.9
_MOST_CLASSES: Final = 32
_FEWEST_AGREEING: Final = 50
_FEWEST_OTHERS: Final = 10
_FEWEST_OF_CLASS: Final = 4
_FEWEST_OF_TWO: Final = 8
_LOOKED_AT: Final = 64


def rows_shown(classes: npt.NDArray[np.intp], order: npt.NDArray[np.intp]) -> int:
    """Return how many rows show that classes are told; none if rows lie class by class.

    Args:
        classes: The class of each row in this order, 0 to K - 1 [B].
        order: The order of rows in which those of a class follow each other [B].
    """
    counts = np.bincount(classes)
    of_rows = np.empty_like(classes)
    of_rows[order] = classes
    if np.count_nonzero(np.diff(of_rows)) < len(counts):
        return 0
    most = int(counts.max())
    # The first row of a class shows nothing: whatever it holds could stand for the class.
    others = len(classes) - most - (len(counts) - 1)
    return others + min(most - 1, _MOST_OF_FREQUENT * others)


def columns_of_classes(
    columns: npt.NDArray[Any],
    order: npt.NDArray[np.intp],
    classes: npt.NDArray[np.intp],
    *,
    is_again: bool,
) -> dict[str, npt.NDArray[np.intp]] | None:
    """Return which columns tell classes together, or part each of them; None if they do not.

    Args:
        columns: The columns [B, C].
        order: The order of rows in which those of a class follow each other [B].
        classes: The class of each row in this order, 0 to K - 1 [B].
        is_again: Whether they told them before: then four fifths of the classes must differ, and a
            column need not vary.

    Returns:
        Numbers of columns by the class that they part, as text, or for `TOGETHER`.
    """
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    judged = np.flatnonzero((counts >= _FEWEST_OF_CLASS) & (len(classes) - counts >= counts))
    is_pair = len(counts) == _PAIR and counts.min() >= _FEWEST_OF_TWO
    if not (is_pair or 2 * len(judged) >= len(counts) > _PAIR) or len(counts) > _MOST_CLASSES:
        judged = judged[:0]
    same = np.zeros(columns.shape[1], np.bool_)
    parting = np.zeros((len(judged), columns.shape[1]), np.bool_)
    for at, block in blocks(columns, order):
        low, high = np.minimum.reduceat(block, starts), np.maximum.reduceat(block, starts)
        spread = high.max(0) - low.min(0)
        close = rounding(np.maximum(np.abs(low), np.abs(high)), spread)
        same[at] = (high - low <= close).all(0) & (is_again | (spread > close.max(0)))
        for row, one in enumerate(judged):
            parting[row, at] = _parting(block, low, high, (int(one), int(counts[one])))
    first = columns[order[starts]][:, same]
    num_apart = len(np.unique(first, axis=0)) if same.any() else 0
    if num_apart >= math.ceil((_KEPT_APART if is_again else 1) * len(counts)):
        return {TOGETHER: np.flatnonzero(same)}
    if not len(judged) or not parting.any(1).all():
        return None
    return {str(one): np.flatnonzero(parting[row]) for row, one in enumerate(judged)}


def _parting(block: Columns, low: Columns, high: Columns, one: tuple[int, int]) -> Flags:
    """Tell which columns [C] part a class from the others.

    Args:
        block: The columns [B, C].
        low: The least number of each class [K, C].
        high: The greatest number of each class [K, C].
        one: The class, and its number of rows.
    """
    at, count = one
    rest_low, rest_high = (np.delete(ends, at, axis=0) for ends in (low, high))
    below, above = rest_low.min(0), rest_high.max(0)
    gap = np.maximum(low[at] - above, below - high[at])
    parts: Flags = gap > np.maximum(high[at] - low[at], above - below)
    is_mark = (low[at] == high[at]) & ~((rest_low == low[at]) | (rest_high == low[at])).any(0)
    marks = np.flatnonzero(is_mark)
    parts[marks] |= (block[:, marks] == low[at, marks]).sum(0) == count
    return parts


def agreeing_columns(
    columns: npt.NDArray[Any], order: npt.NDArray[np.intp], classes: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Return which columns are the classes but for a few rows.

    Args:
        columns: The columns [B, C].
        order: The order of rows in which those of a class follow each other [B].
        classes: The class of each row in this order, 0 to K - 1 [B].
    """
    counts = np.bincount(classes)
    others = len(classes) - int(counts.max())
    is_too_few = len(classes) < _FEWEST_AGREEING or others < _FEWEST_OTHERS
    told: list[int] = []
    if is_too_few or len(counts) > _MOST_CLASSES:
        return np.asarray(told, np.intp)
    for at, block in blocks(columns, order):
        some = np.sort(block[:: max(len(block) // _LOOKED_AT, 1)], axis=0)
        for column in np.flatnonzero(changes(some)[0].sum(0) < len(counts)):
            numbers = block[:, column]
            by_number = np.argsort(numbers)
            rises = changes(numbers[by_number][:, None])[0][:, 0]
            if rises.sum() != len(counts) - 1:
                continue
            pairs = np.zeros((len(counts), len(counts)), np.intp)
            values = np.concatenate([[0], np.cumsum(rises)])
            np.add.at(pairs, (values, classes[by_number]), 1)
            is_right = 1 - (len(classes) - pairs.max(1).sum()) / others >= _AGREEING
            # Each value stands for another class: else one class is told by none.
            if is_right and len(np.unique(pairs.argmax(1))) == len(counts):
                told.append(at.start + int(column))
    return np.asarray(told, np.intp)
