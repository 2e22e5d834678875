"""Reduces curves to the columns of a picture, without losing a spike.

Shape legend: P = points of a curve, C = columns of the picture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Points", "pixel_columns"]


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
        return Points(*(each[start:end] for each in self))


def pixel_columns(points: Points, num_columns: int) -> Points:
    """Return at most `num_columns` points [C] that keep each column's extremes and bad numbers."""
    if len(points.steps) <= num_columns:
        return points
    first, last = int(points.steps[0]), int(points.steps[-1])
    share = (points.steps - first) / max(last - first, 1)
    columns = np.minimum((share * num_columns).astype(np.int64), num_columns - 1)
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    return Points(
        points.steps[starts],
        np.fmin.reduceat(points.low, starts),
        np.fmax.reduceat(points.high, starts),
        np.logical_or.reduceat(points.bad, starts),
    )
