"""Detects faults of short noisy series, such as losses: spikes, rises, swings, plateaus.

Shape legend: N = numbers of a series, in order.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "FEWEST",
    "LEVEL",
    "WINDOW",
    "Rise",
    "divergence",
    "factor_of_chance",
    "first_jump",
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
_TURNED: Final = 0.25
"""Share of a rise by which its last numbers fall again, not by chance."""
_LEAST_MARGIN: Final = 0.02
"""Minimum share by which a loss must be better than the baseline."""
_ERROR_OF_ROW: Final = 0.4
"""Standard deviation of the loss of one row, relative to that of a constant predictor."""
_SCATTER_OF_ROW: Final = math.sqrt(2)
"""Standard deviation of the loss of one row, relative to its mean: that of a squared error."""
_UNUSUAL: Final = 2.0
"""Deviations of a batch's mean loss that are hardly chance."""
_GROWN: Final = 1.5
"""Multiple of the largest swing at the start from which swings have grown, not by chance."""
_FEW_ROWS: Final = 16
"""A batch with fewer rows may have a third of the usual loss by chance."""
_SINGLE_ROWS: Final = 4
"""A batch with fewer rows may have a loss of almost 0 by chance."""
_JUMP: Final = 3.0
"""Multiple of the loss before training from which a loss of the first steps is a jump."""


class Rise(NamedTuple):
    """A rise of a series above a limit; `scale` is the level to which it is relative."""

    before: float
    now: float
    limit: float
    scale: float


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
    nearly normal for 10 numbers or more, for any distribution. Of 4 numbers, each must be lower.
    """
    n = len(numbers)
    later, earlier = np.tril_indices(n, -1)
    score = float(np.sign(numbers[later] - numbers[earlier]).sum())
    _, counts = np.unique(numbers, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    # The 1 is the correction for continuity.
    return variance > 0 and score + 1 <= -_LIKELY * math.sqrt(variance)


def factor_of_chance(rows: float) -> float:
    """Return the factor by which the mean loss of a batch of `rows` rows may grow by chance.

    It is 1 if the number of rows is unknown.
    """
    return math.exp(_UNUSUAL * _SCATTER_OF_ROW / math.sqrt(max(rows, 1.0))) if rows > 0 else 1.0


def first_jump(first: _Series, rows: float) -> int:
    """Return how many of the first numbers [N] precede a jump; 0 without a jump.

    The first number is the loss before training. A jump is a multiple of it. Batches with few rows,
    or an unknown number of rows, may have a low loss by chance, so they have no jump.
    """
    is_high = first > _JUMP * first[0]
    return int(np.argmax(is_high)) if rows >= _FEW_ROWS and first[0] > 0 else 0


def spike(
    before: _Series, now: _Series, num_deviations: float, least_rise: float, rows: float = math.nan
) -> tuple[float, float] | None:
    """Return the previous median and the limit if the latest numbers are a spike, otherwise None.

    All latest numbers must exceed the previous median by some robust standard deviations, by a
    fixed rise in their units, by twice the excess of the largest previous number, and by what
    batches with so few rows may have by chance. There must be previous numbers [N] and latest
    numbers [N].
    """
    level = float(np.median(before))
    largest = 2 * float(before.max() - level)
    by_chance = level * (factor_of_chance(rows) - 1)
    limit = level + max(num_deviations * spread(before), largest, least_rise, by_chance)
    return (level, limit) if now.min() > limit else None


def divergence(
    first: _Series, numbers: _Series, share: float, rows: float = math.nan
) -> Rise | None:
    """Return the rise of a positive series that rose and stays high, or None.

    * Above its start: the latest numbers are all higher than the first one by the share. The rise
      must exceed the scatter of logarithms, because losses scatter in proportion to their size. A
      loss that jumps in the first steps scatters while it falls again, so only the rise counts.
    * Above its lowest level: the latest 8 numbers are all higher than the lowest 10 consecutive
      ones, by the share of the start level. The rise must exceed the scatter. The numbers must not
      fall again, nor the last half of them by a quarter of the rise.

    Either rise must exceed what a batch with so few rows may have by chance. `first` are the first
    5 numbers [N], and `numbers` these and the latest 30 [N].
    """
    if len(numbers) <= _NUM_HIGH or numbers.min() <= 0:
        return None
    found = _above_first(first, numbers[1:][-WINDOW:], share, rows)
    return found or _above_lowest(first, numbers[-WINDOW:], share, rows)


def _above_first(first: _Series, latest: _Series, share: float, rows: float) -> Rise | None:
    before, now = float(first.max() if rows < _SINGLE_ROWS else first[0]), float(np.median(latest))
    logarithms = np.log(latest)
    factor = math.exp(_CLEAR * max(noise(logarithms), spread(logarithms)))
    factor = _JUMP if first_jump(first, rows) else factor
    limit = before * max(factor, factor_of_chance(rows), 1 + share)
    is_high = now > limit and latest.min() > before * (1 + share)
    return Rise(before, now, limit, before) if is_high else None


def _above_lowest(first: _Series, latest: _Series, share: float, rows: float) -> Rise | None:
    high, earlier = latest[-_NUM_HIGH:], latest[:-_NUM_HIGH]
    if len(earlier) < LEVEL or is_falling(high):
        return None
    levels = np.lib.stride_tricks.sliding_window_view(earlier, LEVEL)
    low = levels[int(np.argmin(levels.max(axis=1)))]
    before, now = float(np.median(low)), float(np.median(high))
    start = float(max(first[0], np.median(first)))
    by_chance = before * (factor_of_chance(rows * _NUM_HIGH) - 1)
    limit = before + max(share * start, _CLEAR * noise(latest), by_chance)
    half = high[_NUM_HIGH // 2 :]
    has_turned = is_falling(half) and half[0] - half[-1] > _TURNED * (now - before)
    is_high = high.min() > low.max() and now > limit and not has_turned
    return Rise(before, now, limit, start) if is_high else None


def oscillation(first: _Series, latest: _Series, rows: float = math.nan) -> float:
    """Return the swing of a positive series, relative to its start; 0 if it does not swing.

    It uses differences of neighbours, so neither a trend nor a single spike counts. The median
    difference must exceed every difference at the start, also in logarithms, because losses scatter
    in proportion to their size: a loss that has converged still has its own noise. It must also
    exceed what batches with so few rows have by chance. The series must not fall, and must not have
    fallen by more than it scatters. `first` are the first numbers [N], at least 2.
    """
    if not ((first > 0).all() and (latest > 0).all()):
        return 0.0
    start = float(np.median(first))
    before, now = (np.abs(np.diff(np.log(numbers))) for numbers in (first, latest))
    has_grown = np.median(now) > max(_GROWN * before.max(), math.log(factor_of_chance(rows)))
    has_grown &= np.median(np.abs(np.diff(latest))) > np.abs(np.diff(first)).max()
    swing, level = noise(latest), float(np.median(latest))
    has_fallen = is_falling(latest) or level < max(_FALLEN * start, start - swing)
    return swing / start if has_grown and not has_fallen else 0.0


def plateau(
    numbers: _Series, least_fall: float, lowest: float = math.nan
) -> tuple[float, float] | None:
    """Return the first and lowest level of a positive series that fell less than by a share.

    Levels are medians of a third of the series, at most 10 numbers. Two standard errors of the fall
    must be smaller than the share. The latest 30 numbers must not fall. All numbers [N], the first
    and the latest, must be positive, and there must be at least 20; otherwise it returns None.
    `lowest` is the lowest level so far.
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
