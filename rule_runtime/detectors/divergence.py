"""Series that rise and stay high."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.trend import is_falling
from rule_runtime.numerics.robust import noise, spread

__all__ = ["NUM_FIRST", "WINDOW", "Divergence", "divergence"]

_Numbers = npt.NDArray[np.float64]

WINDOW: Final = 30
"""Latest numbers that are looked at."""

NUM_FIRST: Final = 5
"""First numbers, whose median is the beginning if it is above the first one."""

_NUM_HIGH: Final = 8
"""Numbers in a row that must be high: single spikes are no divergence."""

_NUM_BEST: Final = 10
"""Numbers in a row that are a level which the series had reached."""

_DEVIATIONS: Final = 4.0
"""Standard deviations of the scatter by which the level must have risen."""

_RECOVERED: Final = 0.1
"""Share of the rise; a series that falls by more and has a downward trend comes down again."""


class Divergence(NamedTuple):
    """A rise.

    Attributes:
        before: The level before.
        now: The level now.
    """

    before: float
    now: float


def divergence(numbers: _Numbers, share: float) -> Divergence | None:
    """Return how far a positive series rose above its first number or its lowest level.

    Above its beginning: the latest 30 numbers are all higher than the first one by the share. Above
    its lowest level: the latest 8 are all higher than the 10 in a row with the lowest maximum among
    the 30, by the share of the beginning, and they do not come down again. In both cases the rise
    must be clear of the scatter, in the first case of logarithms: losses scatter by their size.

    Args:
        numbers: The series [N]: the first 5 numbers, and the latest ones.
        share: The least rise, in parts of the first number or, if that is larger, of the median of
            the first 5.

    Returns:
        None if the series did not rise, is too short, or is not positive throughout.
    """
    if len(numbers) <= _NUM_HIGH or not (numbers > 0).all():
        return None
    first = float(numbers[0])
    start = max(first, float(np.median(numbers[:NUM_FIRST])))
    above = _above_beginning(first, numbers[1:][-WINDOW:], share)
    return above or _above_lowest(numbers[-WINDOW:], share * start)


def _above_beginning(first: float, latest: _Numbers, share: float) -> Divergence | None:
    now, logarithms = float(np.median(latest)), np.log(latest)
    scatter = max(noise(logarithms), spread(logarithms))
    is_clear = np.log(now) - np.log(first) > _DEVIATIONS * scatter
    return Divergence(first, now) if is_clear and latest.min() > first * (1 + share) else None


def _above_lowest(latest: _Numbers, least_rise: float) -> Divergence | None:
    high, before = latest[-_NUM_HIGH:], latest[:-_NUM_HIGH]
    if len(before) < _NUM_BEST:
        return None
    levels = np.lib.stride_tricks.sliding_window_view(before, _NUM_BEST)
    lowest = levels[int(np.argmin(levels.max(axis=1)))]
    found = Divergence(float(np.median(lowest)), float(np.median(high)))
    rise = found.now - found.before
    is_clear = high.min() > lowest.max() and rise > _DEVIATIONS * noise(latest)
    third = len(high) // 3
    recovered = float(np.median(high[:third]) - np.median(high[-third:]))
    comes_down = recovered > _RECOVERED * rise and is_falling(high)
    return found if is_clear and rise > least_rise and not comes_down else None
