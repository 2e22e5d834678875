"""Spikes of a series, by robust deviations."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.robust import spread

__all__ = ["spike"]

_QUANTILE: Final = 0.9
_QUANTILE_OF_NORMAL: Final = 1.2816
"""The 0.9 quantile of a normal distribution, in standard deviations."""


def spike(
    before: npt.NDArray[np.float64],
    now: npt.NDArray[np.float64],
    *,
    num_deviations: float,
    least_rise: float,
) -> tuple[float, float] | None:
    """Return the median before and the limit if the latest numbers are a spike, otherwise None.

    All of them must exceed the median before by some robust standard deviations, by a fixed rise,
    and by twice the excess of the largest number before. The deviation is the median absolute
    deviation or, if larger, that of a normal distribution with the same 0.9 quantile: losses of
    small batches scatter upwards.

    Args:
        before: The numbers before [N], not empty.
        now: The latest numbers [M], not empty.
        num_deviations: Robust standard deviations.
        least_rise: The fixed rise, in units of the numbers.
    """
    level = float(np.median(before))
    upwards = float(np.quantile(before, _QUANTILE) - level) / _QUANTILE_OF_NORMAL
    deviation = max(spread(before), upwards)
    rise = max(num_deviations * deviation, 2 * float(before.max() - level), least_rise)
    return (level, level + rise) if now.min() > level + rise else None
