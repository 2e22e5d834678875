"""Columns that mark a class each: labels that were written into the inputs, as into pixels.

A column marks a class if all its rows have one value there that no other row has. By chance that
happens to no real number, and with three classes or more to no image.

Shape legend: B = rows, C = columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import Flags

__all__ = ["KeptMarks", "marked_by", "marked_so_far"]

_FEWEST_CLASSES: Final = 3
_MOST_CLASSES: Final = 64
_MOST_COLUMNS: Final = 16
_AGAIN: Final = 2
_EACH: Final = 3
_TIMES_AS_MANY: Final = 4


class KeptMarks(TypedDict):
    """What is kept of an input from step to step.

    Attributes:
        marks: For each class, by its number as text, the columns that mark it, and their values.
        counts: How many different rows showed it, by class.
        seen: Numbers that stand for these rows.
    """

    marks: dict[str, list[list[float]]]
    counts: dict[str, int]
    seen: list[int]


def marked_so_far(
    kept: KeptMarks | None,
    columns: npt.NDArray[Any],
    classes: npt.NDArray[np.float64],
    is_new: Callable[[list[int]], Flags],
) -> KeptMarks | None:
    """Return what marks the classes in all batches so far; None if nothing marks one of them.

    A class begins to count in a batch with two of its rows or more.

    Args:
        kept: What this returned for the batch before, if there was one.
        columns: Inputs [B, C].
        classes: Whole numbers from 0 on [B].
        is_new: Tells which rows are not among those that it is given, and adds them [B].
    """
    if not (np.isfinite(classes).all() and (classes == np.floor(classes)).all()):
        return None
    found = KeptMarks(marks={}, counts={}, seen=[]) if kept is None else kept
    marks = {}
    for number, known in found["marks"].items():
        left = [mark for mark in known if _marks(columns[:, int(mark[0])], classes, number, mark)]
        if not left:
            return None
        marks[number] = left
    present, counts = np.unique(classes, return_counts=True)
    for one in present[counts >= _AGAIN]:
        number = str(int(one))
        if number not in marks:
            marks[number] = _first_marks(columns, classes == one)
            if not marks[number] or len(marks) > _MOST_CLASSES:
                return None
    seen = [*found["seen"]]
    shown = is_new(seen) & np.isin(classes, [float(number) for number in marks])
    totals = dict(found["counts"])
    for one, count in zip(*np.unique(classes[shown], return_counts=True), strict=True):
        totals[str(int(one))] = totals.get(str(int(one)), 0) + int(count)
    return KeptMarks(marks=marks, counts=totals, seen=seen)


def marked_by(kept: KeptMarks, rows: int) -> list[int]:
    """Return a column for each class if they are told by these; nothing if too few rows show it.

    Args:
        kept: What `marked_so_far` returned.
        rows: How many rows must show that a column tells a number; four times that a class.
    """
    shown = {number: count for number, count in kept["counts"].items() if count >= _EACH}
    if len(shown) < _FEWEST_CLASSES or sum(shown.values()) < _TIMES_AS_MANY * rows:
        return []
    return sorted({int(kept["marks"][number][0][0]) for number in shown})


def _marks(
    column: npt.NDArray[Any], classes: npt.NDArray[np.float64], number: str, mark: list[float]
) -> bool:
    """Tell whether a column has the value of a mark in the rows of its class, and in no others."""
    return bool(np.array_equal(column == mark[1], classes == float(number)))


def _first_marks(columns: npt.NDArray[Any], own: Flags) -> list[list[float]]:
    """Return columns with one value in a class's rows that no other row has, and this value."""
    values = columns[own][0]
    is_one = (columns[own] == values).all(axis=0) & np.isfinite(values)
    places = np.flatnonzero(is_one)
    places = places[~(columns[~own][:, places] == values[places]).any(axis=0)]
    return [[int(at), float(values[at])] for at in places[:_MOST_COLUMNS]]
