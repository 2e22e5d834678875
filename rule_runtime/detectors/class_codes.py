"""Columns that identify the class of every row, alone or together.

Shape legend: N = rows, C = columns, K = classes.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ClassCode", "identify_classes"]

_Ranges = npt.NDArray[np.float32]

_MAX_CLASSES: Final = 64
"""Classes; a target with more of them is not judged, to bound the state."""
_MAX_NUMBERS: Final = 3072
"""Numbers that the state holds, 4 bytes each: two for each class and column."""
_MIN_ROWS: Final = 3
"""Rows of a class; one or two have values of their own in many columns, by chance."""
_IDENTIFIED: Final = 0.8
"""Share of the classes that must be told apart; columns of healthy inputs reach a third."""
_MIN_COLUMNS: Final = 8
"""Columns of real numbers; of fewer, one may well decide the class without holding it."""


class ClassCode(NamedTuple):
    """What identifies classes.

    Attributes:
        columns: Each column that does alone, or else all that do together; empty if none do.
        has_marks: Whether a class has one single value in one of them.
    """

    columns: list[int]
    has_marks: bool


def identify_classes(
    state: dict[str, Any], columns: npt.NDArray[Any], classes: npt.NDArray[np.float64]
) -> ClassCode:
    """Return the columns that identify the class of all rows so far.

    A column has a gap if some classes are below it, all others above it, and none on both sides.
    Columns identify the classes if four of five are on their own combination of sides. Columns
    count in which a class has one single value. Of 8 real columns or more, any other one counts
    that identifies the classes alone.

    Args:
        state: The range of each class in each column, in earlier batches. Changed in place.
        columns: Finite numbers [N, C].
        classes: The class of each row [N].
    """
    names = sorted({*state.get("classes", ()), *np.unique(classes).tolist()})
    chosen: list[int] = state.get("columns", list(range(columns.shape[1])))
    chosen = chosen if len(names) <= _MAX_CLASSES else []
    low, high, counts = _ranges(state, names, len(chosen))
    table = columns[:, chosen].astype(np.float32)
    for at, name in enumerate(names):
        own = table[classes == name]
        low[at] = np.minimum(low[at], own.min(0, initial=np.inf))
        high[at] = np.maximum(high[at], own.max(0, initial=-np.inf))
        counts[at] += len(own)
    sides, widths = _sides(low, high)
    shown = np.array(counts) >= _MIN_ROWS
    marks = (low == high)[shown].any(0)
    best = np.argsort(-(widths + (marks & (widths > 0))), kind="stable")
    kept = np.sort(best[: _MAX_NUMBERS // (2 * len(names))])
    state["classes"], state["counts"] = names, counts
    state["columns"] = [chosen[at] for at in kept]
    state["ranges"] = base64.b64encode(np.stack([low, high])[:, :, kept].tobytes()).decode()
    are_many = columns.dtype.kind == "f" and columns.shape[1] >= _MIN_COLUMNS
    found = _identifying(sides[shown], marks, are_many=are_many)
    return ClassCode([chosen[at] for at in found], bool(marks[found].any()))


def _identifying(
    sides: npt.NDArray[np.intp], marks: npt.NDArray[np.bool_], *, are_many: bool
) -> list[int]:
    """Return the columns of sides [K, C] in which classes differ, alone or else together."""
    if len(sides) <= 1:
        return []
    fewest = math.ceil(_IDENTIFIED * len(sides))
    num_sides = 1 + sides.max(0, initial=0)
    alone = np.flatnonzero((num_sides >= fewest) & (marks | are_many))
    joint = np.flatnonzero((num_sides > 1) & marks)
    if not len(alone) and len(np.unique(sides[:, joint], axis=0)) < fewest:
        return []
    return [int(at) for at in (alone if len(alone) else joint)]


def _ranges(
    state: dict[str, Any], names: list[float], width: int
) -> tuple[_Ranges, _Ranges, list[int]]:
    """Return the least and the greatest value of each class [K, C], and how many rows it has."""
    low = np.full((len(names), width), np.inf, np.float32)
    high, counts = -low, [0] * len(names)
    rows = [names.index(name) for name in state.get("classes", ())]
    if rows and width:
        ranges = np.frombuffer(base64.b64decode(state["ranges"]), np.float32)
        low[rows], high[rows] = ranges.reshape(2, len(rows), width)
    for row, count in zip(rows, state.get("counts", ()), strict=True):
        counts[row] = count
    return low, high, counts


def _sides(low: _Ranges, high: _Ranges) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return how many gaps lie below each class [K, C], and the widest one's share of the range."""
    order = np.argsort(low, axis=0, kind="stable")
    bottom = np.take_along_axis(low, order, 0).astype(np.float64)
    top = np.maximum.accumulate(np.take_along_axis(high, order, 0), 0).astype(np.float64)
    gaps = bottom[1:] - top[:-1]
    number = np.concatenate([np.zeros_like(order[:1]), np.cumsum(gaps > 0, axis=0)])
    sides = np.empty_like(order)
    np.put_along_axis(sides, order, number, 0)
    spread = top[-1] - bottom[0]
    widths: npt.NDArray[np.float64] = gaps.max(0, initial=0.0) / np.where(spread > 0, spread, 1)
    return sides, widths
