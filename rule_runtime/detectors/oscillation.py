"""Series that swing widely without falling."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling, is_larger
from rule_runtime.numerics.robust import noise

__all__ = ["oscillation"]

_GROWN: Final = 3.0
"""Times the scatter at the beginning: the noise of small batches is there from the first step."""

_FALLEN: Final = 0.5
"""Share of the beginning; a series below it has fallen, however widely it swings."""


def oscillation(first: npt.NDArray[np.float64], latest: npt.NDArray[np.float64]) -> float:
    """Return how widely a positive series swings, in parts of its beginning; 0 if it is no fault.

    The scatter is that of neighbours, so neither a trend nor a single spike counts. It must have
    grown since the beginning, by the rank sum test of the differences of neighbours, and the series
    must not fall.

    Args:
        first: The first numbers of the series [F].
        latest: The latest numbers [W].
    """
    start, scatter = float(np.median(first)), noise(latest)
    if not ((first > 0).all() and (latest > 0).all()):
        return 0.0
    has_grown = scatter >= _GROWN * noise(first) and is_larger(
        np.abs(np.diff(latest)), np.abs(np.diff(first))
    )
    falls = is_falling(latest) or float(np.median(latest)) < _FALLEN * start
    return scatter / start if has_grown and not falls else 0.0
