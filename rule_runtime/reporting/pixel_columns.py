"""Reduces curves to the columns of a picture, without losing a spike.

Shape legend: P = points of a curve, C = columns of the picture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Points", "extreme_places", "pixel_columns"]


class Points(NamedTuple):
    """A curve in order of its steps; a point may stand for several steps.

    Attributes:
        steps: First step of each point [P].
        low: Smallest number of its steps [P]; NaN without a finite one.
        high: Largest number of its steps [P]; NaN without a finite one.
        bad: Whether a number of its steps was NaN or infinite [P].
    """

    steps: npt.NDArray[np.int64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    bad: npt.NDArray[np.bool_]

    def between(self, first: float, last: float) -> Points:
        """Return the points in a range of steps, with one neighbour at each end."""
        start = max(int(np.searchsorted(self.steps, first)) - 1, 0)
        end = int(np.searchsorted(self.steps, last, side="right")) + 1
        shown = slice(start, end)
        return Points(self.steps[shown], self.low[shown], self.high[shown], self.bad[shown])


def pixel_columns(
    points: Points, num_columns: int, first: float = -np.inf, last: float = np.inf
) -> Points:
    """Return points [C] that keep each column's extremes and bad numbers.

    Args:
        points: A curve.
        num_columns: Largest number of points in the range; a neighbour at each end is added.
        first: First step of the range.
        last: Last step of the range.
    """
    near = points.between(first, last)
    is_inside = (near.steps >= first) & (near.steps <= last)
    starts = np.flatnonzero(is_inside)
    if len(starts) > num_columns:
        starts = starts[0] + _column_starts(near.steps[starts], num_columns)
    starts = np.union1d(starts, np.flatnonzero(~is_inside))
    if len(starts) == len(near.steps):
        return near
    return Points(
        near.steps[starts],
        np.fmin.reduceat(near.low, starts),
        np.fmax.reduceat(near.high, starts),
        np.logical_or.reduceat(near.bad, starts),
    )


def extreme_places(
    steps: npt.NDArray[np.int64], numbers: npt.NDArray[np.float64], num_columns: int
) -> list[int]:
    """Return the positions of the ends, and of each column's extremes and first NaN, in order.

    Args:
        steps: Steps of a curve, increasing [P].
        numbers: Its numbers [P].
        num_columns: Number of columns; a curve of twice as many points is kept whole.
    """
    if len(steps) <= 2 * num_columns:
        return list(range(len(steps)))
    starts = _column_starts(steps, num_columns)
    kept = {0, len(steps) - 1}
    for start, end in zip(starts, [*starts[1:], len(steps)], strict=True):
        part = numbers[start:end]
        is_bad = np.isnan(part)
        if is_bad.any():
            kept.add(int(start + is_bad.argmax()))
        if not is_bad.all():
            kept |= {int(start + np.nanargmin(part)), int(start + np.nanargmax(part))}
    return sorted(kept)


def _column_starts(steps: npt.NDArray[np.int64], num_columns: int) -> npt.NDArray[np.intp]:
    """Return the position of the first point of each column that is not empty."""
    share = (steps - steps[0]) / max(int(steps[-1]) - int(steps[0]), 1)
    columns = np.minimum((share * num_columns).astype(np.int64), num_columns - 1)
    return np.flatnonzero(np.diff(columns, prepend=-1))
