"""Series that swing widely without falling."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling
from rule_runtime.numerics.robust import noise

__all__ = ["oscillation"]

_FALLEN: Final = 0.5
"""Share of the level at the beginning below which a series has fallen, even if it swings."""


def oscillation(first: npt.NDArray[np.float64], latest: npt.NDArray[np.float64]) -> float:
    """Return how widely a positive series swings, in parts of its beginning; 0 if it does not.

    The scatter is that of neighbours, so neither a trend nor a single spike counts. The median
    difference of neighbours must exceed every one at the beginning. For that logarithms are
    compared: losses scatter by their size. The series must not fall.

    Args:
        first: The first numbers of the series [F], at least 2.
        latest: The latest numbers [W].
    """
    if not ((first > 0).all() and (latest > 0).all()):
        return 0.0
    start = float(np.median(first))
    before, now = (np.abs(np.diff(np.log(numbers))) for numbers in (first, latest))
    has_grown = np.median(now) > before.max()
    has_fallen = is_falling(latest) or float(np.median(latest)) < _FALLEN * start
    return noise(latest) / start if has_grown and not has_fallen else 0.0
