"""Compares losses with a baseline, the loss of the best constant predictor.

Shape legend: W = the latest losses, oldest first.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["is_falling_below", "is_never_better", "margin_of"]

_LEAST_MARGIN: Final = 0.02
"""Smallest share by which a loss must be better than the baseline."""

_ERROR_OF_ROW: Final = 0.4
"""Standard deviation of the loss of one row about that of a constant predictor, as a share."""

_STEADY: Final = 0.005
"""Share by which a loss falls from one half of the window to the other if it falls at all."""

_FAST: Final = 0.02
"""Share by which a loss falls from one number to the next if it falls fast."""

_LATEST: Final = 3
"""Losses whose median is compared, which one outlier does not move."""


def margin_of(rows: float) -> float:
    """Return by which share a loss may be below the baseline by chance.

    Args:
        rows: Number of rows that the loss is a mean of; infinite if unknown.
    """
    return max(_LEAST_MARGIN, _ERROR_OF_ROW / math.sqrt(max(rows, 1.0)))


def is_never_better(
    latest: npt.NDArray[np.float64], lowest: float, baseline: float, margin: float
) -> bool:
    """Return whether a loss was never better than a baseline, and does not fall below it.

    Args:
        latest: The latest losses [W].
        lowest: The smallest loss of all.
        baseline: Loss of the best constant predictor.
        margin: Share by which a loss must be below the baseline to be better.
    """
    now = float(np.median(latest[-_LATEST:]))
    is_worse = lowest > (1 - margin) * baseline and now > (1 - margin / 2) * baseline
    return is_worse and not is_falling_below(latest, baseline)


def is_falling_below(latest: npt.NDArray[np.float64], baseline: float) -> bool:
    """Return whether a loss falls fast, or slowly and gets below a baseline if that continues.

    The medians of both halves are compared; half a window later the loss is as much lower again.

    Args:
        latest: The latest losses [W], at least 2.
        baseline: Loss of the best constant predictor.
    """
    before, after = (float(np.median(half)) for half in np.array_split(latest, 2))
    fall = before - after
    is_fast = fall > _FAST * abs(before) * len(latest) / 2
    return is_fast or (fall > _STEADY * abs(before) and after - fall < baseline)
