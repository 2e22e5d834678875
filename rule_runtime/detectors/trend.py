"""Trends of short noisy series, by ranks."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.robust import rank_sum, trend

__all__ = ["is_falling", "is_larger", "is_rising"]

_LIKELY: Final = 1.64
"""Standard deviations of a z-score; by chance one series in 20 falls as clearly."""

_CERTAIN: Final = 3.0
"""Standard deviations of a z-score; by chance one series in 700 is beyond them."""


def is_falling(numbers: npt.NDArray[np.float64]) -> bool:
    """Return whether a series falls, by the test of Mann and Kendall at the level of 5 %.

    Args:
        numbers: The series [N], in order.
    """
    return trend(numbers) <= -_LIKELY


def is_rising(numbers: npt.NDArray[np.float64]) -> bool:
    """Return whether a series certainly rises, by the test of Mann and Kendall.

    Args:
        numbers: The series [N], in order.
    """
    return trend(numbers) >= _CERTAIN


def is_larger(numbers: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> bool:
    """Return whether numbers are certainly larger than others, by the rank sum test.

    Args:
        numbers: The numbers [N].
        reference: What they are compared with [M].
    """
    return rank_sum(numbers, reference) >= _CERTAIN
