"""Series that hardly fell since they began."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling
from rule_runtime.numerics.robust import noise

__all__ = ["FEWEST", "LEVEL", "WINDOW", "Plateau", "plateau"]

_ERROR_OF_MEDIAN: Final = math.sqrt(math.pi / 2)
"""Standard error of a median of normal numbers, in parts of that of their mean."""

FEWEST: Final = 20
"""Numbers below which the test of a trend finds too little."""

WINDOW: Final = 30
"""Latest numbers that must have no trend."""

LEVEL: Final = 10
"""Numbers whose median is a level, at most."""

_BEGINNING: Final = 3
"""Numbers whose median is the level at the beginning, if the first third is lower already."""


class Plateau(NamedTuple):
    """A series that hardly fell.

    Attributes:
        start: Level at the beginning.
        lowest: The lowest level since.
    """

    start: float
    lowest: float

    @property
    def fall(self) -> float:
        """The fall in parts of the level at the beginning."""
        return 1 - self.lowest / self.start


def plateau(numbers: npt.NDArray[np.float64], least_fall: float) -> Plateau | None:
    """Return the level of a positive series that fell by less than some share, and does not fall.

    Levels are medians of a third of the series, of at most 10 numbers. Noise must leave no doubt:
    two standard errors of the fall are less than the share. The latest 30 numbers must have no
    downward trend.

    Args:
        numbers: The series [N].
        least_fall: The share.

    Returns:
        None if it fell, still falls, is too noisy, too short, or not positive throughout.
    """
    if len(numbers) < FEWEST or not (numbers > 0).all():
        return None
    third = min(len(numbers) // 3, LEVEL)
    start = float(max(np.median(numbers[:_BEGINNING]), np.median(numbers[:third])))
    levels = np.median(np.lib.stride_tricks.sliding_window_view(numbers, third), axis=1)
    found = Plateau(start, float(levels.min()))
    scatter = noise(numbers) / start
    error = _ERROR_OF_MEDIAN * scatter * math.sqrt(2 / third)
    if found.fall >= least_fall or 2 * error >= least_fall:
        return None
    return None if is_falling(numbers[-WINDOW:]) else found
