"""Columns that part two classes: by a limit, or by one value that only one of them has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import Columns, Flags, blocks

__all__ = ["Limits", "comes_near", "limits_of", "parting"]

_NEAR: Final = 0.9
_BY_CHANCE: Final = 1.2
_EXACT: Final = 1e-9
_FEWEST_OF_CLASS: Final = 8
_FEWEST_COLUMNS: Final = 8
_MOST_COLUMNS: Final = 128
_CLOSE: Final = 16
_WITHIN: Final = 0.25
_WHOLE: Final = "iu"
_SIDES: Final = ((0, 1), (1, 0))
"""Each of the two classes, and the other one."""


class Limits(TypedDict):
    """What is known of columns that part two classes in all batches so far.

    Attributes:
        classes: The numbers of the two classes.
        columns: Which columns part them.
        ranges: The least and the greatest number of the first class, and of the second [C, 4].
        is_lone: Whether all rows of the first class, and of the second, have one value that no row
            of the other has [C, 2].
        close: How many rows lie within a quarter of the standard deviation of the limit [C].
        rows: How many rows there were.
    """

    classes: list[float]
    columns: list[int]
    ranges: list[list[float]]
    is_lone: list[list[bool]]
    close: list[int]
    rows: int


def limits_of(
    columns: npt.NDArray[Any], targets: npt.NDArray[np.float64], kept: Limits | None
) -> Limits | None:
    """Return what is known of the columns behind a further batch.

    Args:
        columns: The columns [B, C]; a limit of whole numbers says nothing, for they may be names.
        targets: The class of each row [B].
        kept: What was known before; None at first.

    Returns:
        None while no batch has had rows of both of two classes, 8 of each where more than 128
        columns would have to be kept; without columns where none is left, or more than 128 are, or
        there are less than 8 in all or further classes.
    """
    classes, counts = np.unique(targets, return_counts=True)
    if not len(classes):
        return kept
    if kept is None:
        fewest = _FEWEST_OF_CLASS if columns.shape[1] > _MOST_COLUMNS else 1
        if len(classes) == 1 or (len(classes) == len(_SIDES) and counts.min() < fewest):
            return None
        if len(classes) > len(_SIDES) or columns.shape[1] < _FEWEST_COLUMNS:
            return _refuted(classes[:2].tolist())
        kept = _all_columns(classes.tolist(), columns.shape[1])
    if not set(classes.tolist()) <= {*kept["classes"]} or columns.shape[1] <= max(
        kept["columns"], default=0
    ):
        return _refuted(kept["classes"])
    return _joined(columns, [targets == of for of in kept["classes"]], kept)


def parting(limits: Limits) -> list[int]:
    """Return the columns that part classes; of those that have the same ranges the first.

    None if one of them does where hardly any row is close to the limit, less than one in 16: it is
    what lies between two kinds that are far apart, and no number that the classes were made from.

    Args:
        limits: What is known of them.
    """
    first: dict[tuple[float, ...], int] = {}
    for row, at in enumerate(limits["columns"]):
        if not any(limits["is_lone"][row]) and _CLOSE * limits["close"][row] < limits["rows"]:
            return []
        first.setdefault(tuple(limits["ranges"][row]), at)
    return [*first.values()]


def comes_near(
    columns: npt.NDArray[Any], targets: npt.NDArray[np.float64], told: Sequence[int]
) -> bool | None:
    """Return whether a further column nearly tells two classes, as in images and texts.

    Args:
        columns: The columns [B, C].
        targets: The class of each row [B].
        told: The columns that tell the classes.

    Returns:
        True if one has a correlation with the class, of either sign, of more than 0.9, and of 1.2
        times the most that so many columns of noise would be expected to have; None of rows so few
        that noise alone might.
    """
    num_rows, num_columns = columns.shape
    by_chance = math.sqrt(2 * math.log(2 * num_columns) / num_rows)
    limit = max(_NEAR, _BY_CHANCE * by_chance)
    if limit >= 1:
        return None
    is_other = np.ones(num_columns, np.bool_)
    is_other[[*told]] = False
    centred = (targets == targets[0]) - (targets == targets[0]).mean()
    for at, block in blocks(columns, np.arange(num_rows)):
        apart = block - block.mean(0)
        size = np.sqrt(np.square(apart).sum(0) * np.square(centred).sum())
        found = np.abs(centred @ apart)
        # What is the class itself in this batch, but was not in others, is none of those.
        is_near = (found > limit * size) & (found < (1 - _EXACT) * size)
        if (is_near & is_other[at]).any():
            return True
    return False


def _refuted(classes: list[float]) -> Limits:
    return {"classes": classes, "columns": [], "ranges": [], "is_lone": [], "close": [], "rows": 0}


def _all_columns(classes: list[float], num_columns: int) -> Limits:
    unknown = [math.inf, -math.inf, math.inf, -math.inf]
    return {
        "classes": classes,
        "columns": list(range(num_columns)),
        "ranges": [unknown] * num_columns,
        "is_lone": [[True, True]] * num_columns,
        "close": [0] * num_columns,
        "rows": 0,
    }


def _joined(columns: npt.NDArray[Any], of_class: list[Flags], kept: Limits) -> Limits:
    """Return what is known behind a further batch, of columns that still part the classes.

    Args:
        columns: The columns [B, C].
        of_class: Which rows are of the first class [B], and which of the second.
        kept: What was known before.
    """
    names = np.asarray(kept["columns"], np.intp)
    ranges = np.asarray(kept["ranges"], np.float64).reshape(-1, 4).T
    is_lone = np.asarray(kept["is_lone"], np.bool_).reshape(-1, 2).T
    close = np.asarray(kept["close"], np.intp)
    is_left = np.zeros(len(names), np.bool_)
    for at, block in blocks(columns[:, names], np.arange(len(columns))):
        ends, lone = ranges[:, at], is_lone[:, at]
        for side, rows in enumerate(of_class):
            low, high = ends[2 * side], ends[2 * side + 1]
            np.minimum(low, block[rows].min(0, initial=math.inf), out=low)
            np.maximum(high, block[rows].max(0, initial=-math.inf), out=high)
        for side, other in _SIDES:
            is_shared = (block[of_class[other]] == ends[2 * side]).any(0)
            lone[side] &= (ends[2 * side] == ends[2 * side + 1]) & ~is_shared
        is_left[at] = lone.any(0)
        if columns.dtype.kind not in _WHOLE:
            is_left[at] |= _are_apart(ends)
        is_left[at] &= np.isfinite(block).all(0)
        limit = (np.minimum(ends[1], ends[3]) + np.maximum(ends[0], ends[2])) / 2
        close[at] += (np.abs(block - limit) <= _WITHIN * block.std(0)).sum(0)
    if is_left.sum() > _MOST_COLUMNS:
        return _refuted(kept["classes"])
    return {
        "classes": kept["classes"],
        "columns": names[is_left].tolist(),
        "ranges": ranges.T[is_left].tolist(),
        "is_lone": is_lone.T[is_left].tolist(),
        "close": close[is_left].tolist(),
        "rows": kept["rows"] + len(columns),
    }


def _are_apart(ends: Columns) -> Flags:
    """Tell where all numbers of one class are above those of the other, of ranges [4, C]."""
    apart: Flags = (ends[1] < ends[2]) | (ends[3] < ends[0])
    return apart
