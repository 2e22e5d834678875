"""Trends of short noisy series."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["is_falling"]

_LIKELY: Final = 1.64
"""Standard deviations of the score; by chance one series in 20 falls as clearly."""


def is_falling(numbers: npt.NDArray[np.float64]) -> bool:
    """Return whether a series falls, by the Mann-Kendall test at the level of 5 %.

    The score counts pairs of numbers that rise minus pairs that fall. Without a trend it is nearly
    normal for 10 numbers or more, whatever their distribution.

    Args:
        numbers: The series [N], in order.
    """
    n = len(numbers)
    later, earlier = np.tril_indices(n, -1)
    score = float(np.sign(numbers[later] - numbers[earlier]).sum())
    _, counts = np.unique(numbers, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    # The 1 is the correction for continuity.
    return variance > 0 and score + 1 <= -_LIKELY * math.sqrt(variance)
