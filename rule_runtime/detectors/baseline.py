"""Compares losses with a baseline, the loss of the best constant predictor."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.curves import is_falling

__all__ = ["is_never_better", "margin_of"]

_LEAST_MARGIN: Final = 0.02
"""Smallest share by which a loss must be better than the baseline."""
_ERROR_OF_ROW: Final = 0.4
"""Standard deviation of the loss of one row about that of a constant predictor, as a share."""


def margin_of(rows: float) -> float:
    """Return by which share a mean loss of so many rows may be below the baseline by chance."""
    return max(_LEAST_MARGIN, _ERROR_OF_ROW / math.sqrt(max(rows, 1.0)))


def is_never_better(
    latest: npt.NDArray[np.float64], lowest: float, baseline: float, margin: float
) -> bool:
    """Return whether a loss was never better than a baseline, and does not fall.

    Args:
        latest: The latest losses [N]; of fewer than 4 no trend is clear.
        lowest: The smallest loss of all.
        baseline: Loss of the best constant predictor.
        margin: Share by which a loss must be below the baseline to be better.
    """
    is_worse = lowest > (1 - margin) * baseline
    is_now = float(np.median(latest)) > (1 - margin / 2) * baseline
    return is_worse and is_now and not is_falling(latest)
