"""Detects faults of short noisy series, such as losses: spikes, rises, swings, plateaus.

Shape legend: N = numbers of a series, in order.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "FEWEST",
    "LEVEL",
    "WINDOW",
    "divergence",
    "is_falling",
    "is_never_better",
    "margin_of",
    "noise",
    "oscillation",
    "plateau",
    "spike",
    "spread",
]

_Series = npt.NDArray[np.float64]

FEWEST: Final = 20
"""Minimum length for a plateau; the trend test misses too much in shorter series."""
WINDOW: Final = 30
"""Number of latest numbers that are compared, or must have no trend."""
LEVEL: Final = 10
"""Number of consecutive numbers whose median or maximum is a level."""

_NORMAL: Final = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
_LIKELY: Final = 1.64
"""Threshold of the trend score in standard deviations; by chance, one series in 20 exceeds it."""
_NUM_HIGH: Final = 8
"""Number of consecutive high numbers: a single spike is no divergence."""
_CLEAR: Final = 4.0
"""Minimum rise of a level, in standard deviations of the scatter."""
_FALLEN: Final = 0.5
"""Share of the start level below which a series has fallen, even if it swings."""
_LEAST_MARGIN: Final = 0.02
"""Minimum share by which a loss must be better than the baseline."""
_ERROR_OF_ROW: Final = 0.4
"""Standard deviation of the loss of one row, relative to that of a constant predictor."""


def spread(numbers: _Series) -> float:
    """Return the median absolute deviation [N], scaled to the deviation of normal numbers."""
    return _NORMAL * float(np.median(np.abs(numbers - np.median(numbers))))


def noise(numbers: _Series) -> float:
    """Return the scatter of a series [N] around its trend; 0 for fewer than 2 numbers.

    It is the scatter of neighbours' differences over the square root of 2, so a trend adds little.
    """
    if len(numbers) <= 1:
        return 0.0
    return _NORMAL * float(np.median(np.abs(np.diff(numbers)))) / math.sqrt(2)


def is_falling(numbers: _Series) -> bool:
    """Return whether a series [N] falls, by the Mann-Kendall test at the 5 % level.

    The score is the number of rising pairs minus the number of falling pairs. Without a trend it is
    nearly normal for 10 numbers or more, for any distribution.
    """
    n = len(numbers)
    later, earlier = np.tril_indices(n, -1)
    score = float(np.sign(numbers[later] - numbers[earlier]).sum())
    _, counts = np.unique(numbers, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    # The 1 is the correction for continuity.
    return variance > 0 and score + 1 <= -_LIKELY * math.sqrt(variance)


def spike(
    before: _Series, now: _Series, *, num_deviations: float, least_rise: float
) -> tuple[float, float] | None:
    """Return the previous median and the limit if the latest numbers are a spike, otherwise None.

    All latest numbers must exceed the previous median by some robust standard deviations, by a
    fixed rise in their units, and by twice the excess of the largest previous number. There must be
    previous numbers [N] and latest numbers [N].
    """
    level = float(np.median(before))
    largest = 2 * float(before.max() - level)
    limit = level + max(num_deviations * spread(before), largest, least_rise)
    return (level, limit) if now.min() > limit else None


def divergence(numbers: _Series, share: float, start: float) -> tuple[float, float] | None:
    """Return the previous and current level of a positive series that rose and stays high, or None.

    * Above its start: the latest numbers are all higher than the first one by the share. The rise
      must exceed the scatter of logarithms, because losses scatter in proportion to their size.
    * Above its lowest level: the latest 8 numbers are all higher than the lowest 10 consecutive
      ones, by the share of the start level. The rise must exceed the scatter, and the numbers must
      not fall again.

    Args:
        numbers: The first numbers and the latest 30 [N].
        share: The least rise.
        start: Level at the start.
    """
    first, latest = float(numbers[0]), numbers[1:][-WINDOW:]
    if len(latest) < _NUM_HIGH or numbers.min() <= 0:
        return None
    now, logarithms = float(np.median(latest)), np.log(latest)
    scatter = max(noise(logarithms), spread(logarithms))
    is_clear = np.log(now / first) > _CLEAR * scatter
    if is_clear and latest.min() > first * (1 + share):
        return first, now
    latest = numbers[-WINDOW:]
    high, earlier = latest[-_NUM_HIGH:], latest[:-_NUM_HIGH]
    if len(earlier) < LEVEL or is_falling(high):
        return None
    levels = np.lib.stride_tricks.sliding_window_view(earlier, LEVEL)
    low = levels[int(np.argmin(levels.max(axis=1)))]
    before, now = float(np.median(low)), float(np.median(high))
    least_rise = max(share * start, _CLEAR * noise(latest))
    return (before, now) if high.min() > low.max() and now - before > least_rise else None


def oscillation(first: _Series, latest: _Series) -> float:
    """Return the swing of a positive series, relative to its start; 0 if it does not swing.

    It uses differences of neighbours, so neither a trend nor a single spike counts. The median
    difference must exceed every difference at the start, in logarithms, because losses scatter in
    proportion to their size. The series must not fall.

    Args:
        first: The first numbers of the series [N], at least 2.
        latest: Its latest numbers [N].
    """
    if not ((first > 0).all() and (latest > 0).all()):
        return 0.0
    start = float(np.median(first))
    before, now = (np.abs(np.diff(np.log(numbers))) for numbers in (first, latest))
    has_grown = np.median(now) > before.max()
    has_fallen = is_falling(latest) or float(np.median(latest)) < _FALLEN * start
    return noise(latest) / start if has_grown and not has_fallen else 0.0


def plateau(
    numbers: _Series, least_fall: float, lowest: float = math.nan
) -> tuple[float, float] | None:
    """Return the first and lowest level of a positive series that fell less than by a share.

    Levels are medians of a third of the series, at most 10 numbers. Two standard errors of the fall
    must be smaller than the share. The latest 30 numbers must not fall. All numbers must be
    positive, and there must be at least 20; otherwise it returns None.

    Args:
        numbers: Its first numbers, and the latest ones [N].
        least_fall: The share.
        lowest: The lowest level so far; NaN if unknown.
    """
    if len(numbers) < FEWEST or not (numbers > 0).all():
        return None
    third = min(len(numbers) // 3, LEVEL)
    levels = np.median(np.lib.stride_tricks.sliding_window_view(numbers, third), axis=1)
    start = float(max(numbers[0], levels[0]))
    low = float(np.fmin(levels.min(), lowest))
    # The standard error of a median of n normal numbers is sqrt(pi / 2) deviations / sqrt(n).
    error = 2 * math.sqrt(math.pi) * noise(numbers) / start / math.sqrt(third)
    has_fallen = 1 - low / start >= least_fall or is_falling(numbers[-WINDOW:])
    return None if has_fallen or error >= least_fall else (start, low)


def margin_of(rows: float) -> float:
    """Return the share by which a mean loss of `rows` rows can be below the baseline by chance."""
    return max(_LEAST_MARGIN, _ERROR_OF_ROW / math.sqrt(max(rows, 1.0)))


def is_never_better(latest: _Series, lowest: float, baseline: float, margin: float) -> bool:
    """Return whether a loss was never better than a baseline, and does not fall.

    A trend needs at least 4 latest losses [N]. The margin is the share below the baseline that
    counts as better.
    """
    is_worse = lowest > (1 - margin) * baseline
    is_now = float(np.median(latest)) > (1 - margin / 2) * baseline
    return is_worse and is_now and not is_falling(latest)
