"""Scatter of short noisy series, hardly changed by outliers.

Shape legend: N = numbers of a series, in order.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["noise", "spread"]

_NORMAL: Final = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""


def spread(numbers: npt.NDArray[np.float64]) -> float:
    """Return the median absolute deviation, scaled to the standard deviation of normal numbers.

    Args:
        numbers: The series [N], not empty.
    """
    return _NORMAL * float(np.median(np.abs(numbers - np.median(numbers))))


def noise(numbers: npt.NDArray[np.float64]) -> float:
    """Return the scatter of a series around its trend; 0 for fewer than 2 numbers.

    It is the scatter of neighbours' differences over the square root of 2, so a trend adds little.

    Args:
        numbers: The series [N].
    """
    if len(numbers) <= 1:
        return 0.0
    return _NORMAL * float(np.median(np.abs(np.diff(numbers)))) / math.sqrt(2)
