"""Faults of short noisy series, such as losses: spikes, rises, swings, plateaus, no skill.

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
"""Numbers below which the test of a trend detects too little to speak of a plateau."""
WINDOW: Final = 30
"""Latest numbers that are compared, or must have no trend."""
LEVEL: Final = 10
"""Numbers in a row whose median or maximum is a level."""

_NORMAL: Final = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
_LIKELY: Final = 1.64
"""Standard deviations of the score of a trend; by chance one series in 20 falls as clearly."""
_NUM_HIGH: Final = 8
"""Numbers in a row that must be high: a single spike is no divergence."""
_CLEAR: Final = 4.0
"""Standard deviations of the scatter by which a level must have risen."""
_FALLEN: Final = 0.5
"""Share of the level at the beginning below which a series has fallen, even if it swings."""
_LEAST_MARGIN: Final = 0.02
"""Smallest share by which a loss must be better than the baseline."""
_ERROR_OF_ROW: Final = 0.4
"""Standard deviation of the loss of one row about that of a constant predictor, as a share."""


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
    """Return whether a series [N] falls, by the Mann-Kendall test at the level of 5 %.

    The score counts pairs of numbers that rise minus pairs that fall. Without a trend it is nearly
    normal for 10 numbers or more, whatever their distribution.
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
    """Return the median before and the limit if the latest numbers are a spike, otherwise None.

    All of them must exceed the median before by some robust standard deviations, by a fixed rise,
    and by twice the excess of the largest number before. The fixed rise is in their units. There
    are numbers before [N] and now [N].
    """
    level = float(np.median(before))
    largest = 2 * float(before.max() - level)
    limit = level + max(num_deviations * spread(before), largest, least_rise)
    return (level, limit) if now.min() > limit else None


def divergence(numbers: _Series, share: float, start: float) -> tuple[float, float] | None:
    """Return the levels before and now of a positive series that rose and stays high, else None.

    * Above its beginning: the latest numbers are all higher than the first one by the share. The
      rise must be clear of the scatter of logarithms: losses scatter by their size.
    * Above its lowest level: the latest 8 numbers are all higher than the lowest 10 in a row, by
      the share of the beginning. They must be clear of the scatter and must not fall again.

    Args:
        numbers: The first numbers and the latest 30 [N].
        share: The least rise.
        start: Level at the beginning.
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
    """Return how widely a positive series swings, in parts of its beginning; 0 if it does not.

    The scatter is that of neighbours, so neither a trend nor a single spike counts. The median
    difference of neighbours must exceed every one at the beginning. For that logarithms are
    compared: losses scatter by their size. The series must not fall.

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
    """Return the first and the lowest level of a positive series that fell less than by a share.

    Levels are medians of a third of the series, at most 10 numbers. Noise must leave no doubt: two
    standard errors of the fall are smaller than the share. The latest 30 numbers must not fall, and
    all must be positive, 20 or more; otherwise it returns None.

    Args:
        numbers: Its first numbers, and the latest ones [N].
        least_fall: The share.
        lowest: The lowest level that it ever had; NaN if unknown.
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
    """Return by which share a mean loss of so many rows may be below the baseline by chance."""
    return max(_LEAST_MARGIN, _ERROR_OF_ROW / math.sqrt(max(rows, 1.0)))


def is_never_better(latest: _Series, lowest: float, baseline: float, margin: float) -> bool:
    """Return whether a loss was never better than a baseline, and does not fall.

    Of fewer than 4 latest losses [N] no trend is clear. The margin is the share by which a better
    loss is below the baseline.
    """
    is_worse = lowest > (1 - margin) * baseline
    is_now = float(np.median(latest)) > (1 - margin / 2) * baseline
    return is_worse and is_now and not is_falling(latest)
