"""Statistics of short noisy series that outliers do not spoil.

Shape legend: N = numbers of a series, in order.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["noise", "rank_sum", "spread", "trend"]

_NORMAL: Final = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""


def spread(numbers: npt.NDArray[np.float64]) -> float:
    """Return the median absolute deviation, scaled to the standard deviation of normal numbers.

    Args:
        numbers: The series [N], not empty.
    """
    return _NORMAL * float(np.median(np.abs(numbers - np.median(numbers))))


def noise(numbers: npt.NDArray[np.float64]) -> float:
    """Return how much a series scatters about its course, whatever that is; 0 of less than 2.

    The scatter of neighbours' differences over the square root of 2: a trend hardly adds to it.

    Args:
        numbers: The series [N].
    """
    if len(numbers) <= 1:
        return 0.0
    return _NORMAL * float(np.median(np.abs(np.diff(numbers)))) / math.sqrt(2)


def trend(numbers: npt.NDArray[np.float64]) -> float:
    """Return the z-score of the Mann-Kendall test: negative of a falling series.

    Of a series without a trend it is nearly normal with mean 0 and standard deviation 1, whatever
    its distribution, for 10 numbers or more. With the correction for ties and for continuity.

    Args:
        numbers: The series [N].
    """
    n = len(numbers)
    if n <= 2:  # noqa: PLR2004 - two numbers always have a direction
        return 0.0
    later, earlier = np.tril_indices(n, -1)
    score = float(np.sign(numbers[later] - numbers[earlier]).sum())
    _, counts = np.unique(numbers, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0:
        return 0.0
    return (score - float(np.sign(score))) / math.sqrt(variance)


def rank_sum(numbers: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> float:
    """Return the z-score of the Mann-Whitney test: positive if numbers are larger than others.

    If both are of one distribution, whatever it is, nearly normal with mean 0 and standard
    deviation 1. Without the corrections for ties and for continuity.

    Args:
        numbers: The numbers [N].
        reference: What they are compared with [M].
    """
    n, m = len(numbers), len(reference)
    if not n or not m:
        return 0.0
    score = float(np.sign(numbers[:, None] - reference[None, :]).sum()) / 2
    return score / math.sqrt(n * m * (n + m + 1) / 12)
