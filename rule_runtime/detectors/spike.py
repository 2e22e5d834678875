"""Spikes of a series, by a robust z-score."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.robust import spread

__all__ = ["Spike", "spike"]

_QUANTILE: Final = 0.9
_QUANTILE_OF_NORMAL: Final = 1.2816
"""The 0.9 quantile of a normal distribution, in standard deviations."""


class Spike(NamedTuple):
    """How the latest numbers of a series compare with those before.

    Attributes:
        level: Median of the numbers before.
        limit: The largest number that is no spike.
        margin: How far the lowest of the latest numbers is above the level, in parts of the
            distance of the limit; a spike if it is above 1.
    """

    level: float
    limit: float
    margin: float

    @property
    def is_found(self) -> bool:
        """Whether it is a spike."""
        return self.margin > 1


def spike(
    before: npt.NDArray[np.float64],
    now: npt.NDArray[np.float64],
    *,
    num_deviations: float,
    least_rise: float,
) -> Spike:
    """Compare the latest numbers with those before.

    All of them must be above the median before by more than some robust standard deviations, by
    more than a fixed rise and by more than twice what the largest number before was. The deviation
    is the median absolute deviation of the numbers, or that of a normal distribution with the same
    0.9 quantile, if that is larger: losses of small batches scatter upwards.

    Args:
        before: The numbers before [N], not empty.
        now: The latest numbers [M], not empty.
        num_deviations: Robust standard deviations.
        least_rise: The fixed rise, positive, in units of the numbers.
    """
    level = float(np.median(before))
    upwards = float(np.quantile(before, _QUANTILE) - level) / _QUANTILE_OF_NORMAL
    deviation = max(spread(before), upwards)
    rise = max(num_deviations * deviation, 2 * float(before.max() - level), least_rise)
    return Spike(level, level + rise, float(now.min() - level) / rise if rise > 0 else 0.0)
