"""Columns that mark a class each: labels that were written into the inputs, with noise or without.

A column marks a class if no other row lies among the numbers that the rows of the class have there:
one value, as of a pixel that was set, or a range of its own, as of the class's number with some
noise, or of an identifier in rows that were sorted. By chance that happens to no column for every
class. Where classes are far apart by their nature, many columns part them, or come near.

Shape legend: B = rows, C = columns, M = marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.class_counts import counted, shown_classes
from rule_runtime.numerics.class_limits import comes_near
from rule_runtime.numerics.column_blocks import Flags
from rule_runtime.numerics.own_ranges import (
    Range,
    are_values,
    own_ranges,
    still_own,
)

__all__ = ["KeptMarks", "marked_by", "marked_so_far"]

_FEWEST_CLASSES: Final = 3
_MOST_CLASSES: Final = 64
_AGAIN: Final = 2
_FEWEST_COLUMNS: Final = 8
_MOST_RANGES: Final = 4
_MANY: Final = 8


class KeptMarks(TypedDict):
    """What is kept of an input from step to step.

    Attributes:
        marks: For each class, by its number as text, its range in each column that marks it.
        counts: How many different rows showed it, by class.
        seen: Numbers that stand for these rows.
        columns: How many columns there are.
        batches: In how many batches further columns could come near.
        near: In how many of these one did.
    """

    marks: dict[str, list[Range]]
    counts: dict[str, int]
    seen: list[int]
    columns: int
    batches: int
    near: int


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
        columns: Inputs [B, C]; of whole numbers, which may be names, only single values count.
        classes: Whole numbers from 0 on [B].
        is_new: Tells which rows are not among those that it is given, and adds them [B].
    """
    if not (np.isfinite(classes).all() and (classes == np.floor(classes)).all()):
        return None
    found = kept or KeptMarks(
        marks={}, counts={}, seen=[], columns=columns.shape[1], batches=0, near=0
    )
    if columns.shape[1] != found["columns"]:
        return None
    marks = {}
    for number, known in found["marks"].items():
        marks[number] = still_own(columns, classes == float(number), known)
        if not marks[number]:
            return None
    present, counts = np.unique(classes, return_counts=True)
    for one in present[counts >= _AGAIN]:
        number = str(int(one))
        if number not in marks:
            marks[number] = own_ranges(columns, classes == one)
            if not marks[number] or len(marks) > _MOST_CLASSES:
                return None
    seen = [*found["seen"]]
    totals = counted(found["counts"], classes, marks, is_new(seen))
    near = _come_near(columns, classes, marks)
    return KeptMarks(
        marks=marks,
        counts=totals,
        seen=seen,
        columns=found["columns"],
        batches=found["batches"] + (near is not None),
        near=found["near"] + bool(near),
    )


def marked_by(kept: KeptMarks, rows: int) -> list[int]:
    """Return a column for each class if they are told by these; nothing if too few rows show it.

    Ranges that are no single value count among 8 columns or more, of which no more than four mark a
    class, unless they are the same there, and none comes near in half of the batches.

    Args:
        kept: What `marked_so_far` returned.
        rows: How many rows must show that a column tells a number; four times that a class.
    """
    shown = shown_classes(kept["counts"], rows, _FEWEST_CLASSES)
    if not shown:
        return []
    is_exact = all(are_values(kept["marks"][number]) for number in shown)
    if not is_exact:
        of_many = [kept["marks"][number] for number in shown if kept["counts"][number] >= _MANY]
        num_ranges = max((len({tuple(mark[1:]) for mark in marks}) for marks in of_many), default=0)
        is_alone = 2 * kept["near"] < max(kept["batches"], 1)
        if kept["columns"] < _FEWEST_COLUMNS or num_ranges > _MOST_RANGES or not is_alone:
            return []
    firsts = [_first(kept["marks"][number]) for number in shown]
    of_all = set.intersection(*({int(mark[0]) for mark in kept["marks"][n]} for n in shown))
    return [min(of_all)] if of_all else sorted({int(mark[0]) for mark in firsts})


def _first(marks: list[Range]) -> Range:
    """Return the first mark, of those with one value if there are any."""
    return min(marks, key=lambda mark: (mark[1] < mark[2], mark))


def _come_near(
    columns: npt.NDArray[Any],
    classes: npt.NDArray[np.float64],
    marks: dict[str, list[Range]],
) -> bool | None:
    """Return whether a further column nearly tells a class from the others; None if none could."""
    if all(map(are_values, marks.values())):
        return None
    message = sorted({int(mark[0]) for of in marks.values() for mark in of})
    found = [
        comes_near(columns, (classes == float(number)).astype(np.float64), message)
        for number in marks
        if _AGAIN <= (classes == float(number)).sum() < len(classes)
    ]
    known = [near for near in found if near is not None]
    return any(known) if known else None
