"""LossSpike: a loss that jumps far out of what it was just before."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np

from rule_runtime.engine.rule import AtLeast, GreaterThan, Unit
from rule_runtime.facts.loss_rule import Finding, LossRule
from rule_runtime.numerics.robust import spread
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["LossSpike"]


_Q90: Final = 1.2816
"""The 0.9 quantile of a normal distribution, in standard deviations."""


class LossSpike(LossRule):
    """Finds losses that jump up suddenly.

    How it decides:
        The last `patience` saved losses are compared with those before them in the window: each
        must lie above their median by more than `num_deviations` robust standard deviations, above
        twice the largest of them less their median, and by more than `rise_percent` of the loss at
        the beginning (the first one, or the median of the first 5 if that is larger), so that the
        scatter of a loss that is small by now does not count. The standard deviation is 1.4826 x
        median absolute deviation, or the distance of the 0.9 quantile from the median divided by
        1.2816 if that is larger: losses of small batches scatter upwards. Where a loss was 0 at
        first, as before a first reward or while it is switched off, the zeros in front do not
        count. With several losses none is judged while one of them lies clearly below its
        beginning. The losses of EVAL and PREDICT steps and of other data sets than `train` are not
        judged, nor are metrics that should grow.

    Parameters:
        num_points: Saved losses before the spike that it is compared with.
        num_deviations: Robust standard deviations above their median.
        rise_percent: The rise, in percent of the loss at the beginning.
        patience: How many saved losses in a row must be high.

    What to try:
        Gradient clipping, a lower learning rate, a longer warm-up; look at the batches of these
        steps; go on from the checkpoint before, without them.
    """

    num_points: Annotated[int, AtLeast(5), Unit("saved steps")] = 20
    num_deviations: Annotated[float, GreaterThan(0), Unit("standard deviations")] = 8.0
    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 20.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    measure: ClassVar[str] = "loss"
    remedy: ClassVar[str] = (
        "Clip gradients, lower the learning rate or warm it up longer; look at the batches of "
        "these steps, and go on from the checkpoint before without them."
    )

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return self.num_points + self.patience

    @property
    def num_needed(self) -> int:
        """Return how many losses are needed: a quarter of the window."""
        return max(self.num_points // 4, 5) + self.patience

    @property
    def num_bad(self) -> int:
        """Return 1: the window holds the losses that must be high."""
        return 1

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:  # noqa: ARG002
        """Compare the latest losses with the window before them.

        Args:
            series: The losses.
            num_steps: Not used.
        """
        before, now = series.latest[: -self.patience], series.latest[-self.patience :]
        if series.start == 0:
            before = np.trim_zeros(before, "f")
            if len(before) < self.num_needed - self.patience:
                return None
        middle = float(np.median(before))
        deviation = max(spread(before), float(np.quantile(before, 0.9) - middle) / _Q90)
        limit = max(
            middle + self.num_deviations * deviation,
            2 * float(before.max()) - middle,
            middle + self.rise_percent / 100 * series.start,
        )
        lowest = float(now.min())
        if lowest <= limit:
            return None
        return Finding(
            (lowest - middle) / (limit - middle or 1.0),
            float(now[-1]),
            limit,
            f"is {now[-1]:.4g}, and has been above {limit:.4g} for {self.patience} saved steps; "
            f"the median before was {middle:.4g}",
        )
