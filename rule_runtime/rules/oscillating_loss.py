"""OscillatingLoss: a loss that jumps up and down without getting anywhere."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np

from rule_runtime.evaluation.loss_rule import Finding, LossRule
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, Unit
from rule_runtime.numerics.robust import noise, rank_sum, trend
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["OscillatingLoss"]


_GROWN: Final = 3.0
_Z: Final = 3.5


class OscillatingLoss(LossRule):
    """Finds losses that swing widely and do not fall.

    What it detects:
        A training loss that scatters by a large share of what it was at the beginning, much more
        than it did there, and has no downward trend.

    Why it matters:
        Steps that are too long jump over the minimum from one side to the other.

    How it decides:
        The scatter of the latest `num_points` saved losses about their own course is taken from
        the differences of neighbours (median, so that single spikes do not count). It fires if it
        is larger than `amplitude_percent` of the loss at the beginning (median of the first 10),
        and at least three times the scatter there, with a Mann-Whitney test of the differences
        (z above 3.5), while the loss does not fall: the Mann-Kendall test finds no downward trend
        (z above -1.64) and the median of the window is at least half the loss at the beginning.
        So the noise of small batches, which is there from the beginning, is none. A loss that
        changes its sign is not judged. With several losses none is judged while one of them lies
        clearly below its beginning. The losses of EVAL and PREDICT steps and of other data sets
        than `train` are not judged, nor are metrics that should grow.

    Parameters:
        num_points: Saved losses that are looked at.
        amplitude_percent: The scatter, in percent of the loss at the beginning.
        patience: How many saved steps in a row.

    What to try:
        A lower learning rate, a larger batch, gradient clipping.

    Known false alarms:
        A change to much smaller batches in the middle of a training.

    Source:
        Stepwatch; "fluctuating loss" of TheDeepChecker (2022) and "oscillating loss" of
        AUTOTRAINER (2021), measured against noise.
    """

    num_points: Annotated[int, AtLeast(10), Unit("saved steps")] = 20
    amplitude_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = (
        30.0
    )
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    measure: ClassVar[str] = "loss_scatter_percent"
    remedy: ClassVar[str] = "Lower the learning rate, take larger batches or clip gradients."

    num_first: ClassVar[int] = 10
    _NO_TREND: ClassVar[float] = -1.64

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return self.num_points

    @property
    def num_needed(self) -> int:
        """Return how many losses are needed: a beginning, and the window behind it."""
        return self.num_first // 2 + self.num_points

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:  # noqa: ARG002
        """Measure the scatter of the window.

        Args:
            series: The losses.
            num_steps: Not used.
        """
        first, latest = series.first, series.latest
        numbers = series.whole
        scale = abs(float(np.median(first)))
        if not ((numbers > 0).all() or (numbers < 0).all()):
            return None
        amplitude = 100 * noise(latest) / scale
        is_low = np.median(latest) < scale / 2
        if amplitude <= self.amplitude_percent or (is_low and numbers[0] > 0):
            return None
        has_grown = noise(latest) >= _GROWN * noise(first)
        if not has_grown or rank_sum(np.abs(np.diff(latest)), np.abs(np.diff(first))) <= _Z:
            return None
        z = trend(latest)
        if z <= self._NO_TREND:
            return None
        return Finding(
            amplitude,
            amplitude,
            self.amplitude_percent,
            f"scatters by {amplitude:.3g} % of {scale:.4g} at the beginning, more than "
            f"{self.amplitude_percent:g} %, and does not fall (z {z:.2f})",
        )
