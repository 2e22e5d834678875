"""Series that hardly fell since they began."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling
from rule_runtime.numerics.robust import noise

__all__ = ["FEWEST", "LEVEL", "WINDOW", "plateau"]

FEWEST: Final = 20
"""Numbers below which the test of a trend detects too little."""

WINDOW: Final = 30
"""Latest numbers that must have no trend."""

LEVEL: Final = 10
"""Numbers, at most, whose median is a level."""

_BEGINNING: Final = 3
"""Numbers whose median is the level at the beginning if it falls within the first third."""

_ERRORS: Final = 2 * math.sqrt(math.pi / 2) * math.sqrt(2)
"""Two standard errors of the difference of two medians of n numbers, in deviations / sqrt(n)."""


def plateau(
    numbers: npt.NDArray[np.float64], least_fall: float, lowest: float = math.nan
) -> tuple[float, float] | None:
    """Return the first and the lowest level of a positive series that fell less than by a share.

    Levels are medians of a third of the series, at most 10 numbers. Noise must leave no doubt: two
    standard errors of the fall are smaller than the share. The latest 30 numbers must not fall.

    Args:
        numbers: The series [N]: its first numbers, and the latest ones.
        least_fall: The share.
        lowest: The lowest level that the series ever had; NaN if unknown.

    Returns:
        None if it fell, still falls, is too noisy, too short, or not positive throughout.
    """
    if len(numbers) < FEWEST or not (numbers > 0).all():
        return None
    third = min(len(numbers) // 3, LEVEL)
    start = float(max(np.median(numbers[:_BEGINNING]), np.median(numbers[:third])))
    levels = np.median(np.lib.stride_tricks.sliding_window_view(numbers, third), axis=1)
    low = float(np.fmin(levels.min(), lowest))
    error = _ERRORS * noise(numbers) / start / math.sqrt(third)
    has_fallen = 1 - low / start >= least_fall or is_falling(numbers[-WINDOW:])
    return None if has_fallen or error >= least_fall else (start, low)
