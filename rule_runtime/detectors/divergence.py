"""Series that rise and stay high."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling
from rule_runtime.numerics.robust import noise, spread

__all__ = ["WINDOW", "divergence"]

WINDOW: Final = 30
"""Latest numbers that are compared."""

_NUM_HIGH: Final = 8
"""Numbers in a row that must be high: a single spike is no divergence."""

_NUM_LOW: Final = 10
"""Numbers in a row whose maximum is a level that the series had reached."""

_DEVIATIONS: Final = 4.0
"""Standard deviations of the scatter by which the level must have risen."""


def divergence(
    numbers: npt.NDArray[np.float64], share: float, start: float
) -> tuple[float, float] | None:
    """Return the levels before and now of a positive series that rose and stays high.

    * Above its beginning: the latest numbers are all higher than the first one by the share. The
      rise must be clear of the scatter of logarithms: losses scatter by their size.
    * Above its lowest level: the latest 8 numbers are all higher than the lowest 10 in a row, by
      the share of the beginning. They must be clear of the scatter and must not fall again.

    Args:
        numbers: The first numbers and the latest 30 [N].
        share: The least rise.
        start: Level at the beginning.

    Returns:
        None if the series did not rise, is too short, or is not positive throughout.
    """
    first, latest = float(numbers[0]), numbers[1:][-WINDOW:]
    if len(latest) < _NUM_HIGH or numbers.min() <= 0:
        return None
    now, logarithms = float(np.median(latest)), np.log(latest)
    scatter = max(noise(logarithms), spread(logarithms))
    is_clear = np.log(now / first) > _DEVIATIONS * scatter
    if is_clear and latest.min() > first * (1 + share):
        return first, now
    latest = numbers[-WINDOW:]
    high, earlier = latest[-_NUM_HIGH:], latest[:-_NUM_HIGH]
    if len(earlier) < _NUM_LOW or is_falling(high):
        return None
    levels = np.lib.stride_tricks.sliding_window_view(earlier, _NUM_LOW)
    low = levels[int(np.argmin(levels.max(axis=1)))]
    before, now = float(np.median(low)), float(np.median(high))
    least_rise = max(share * start, _DEVIATIONS * noise(latest))
    return (before, now) if high.min() > low.max() and now - before > least_rise else None
