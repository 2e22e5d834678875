"""LossSpike: detects losses that jump far above their latest level."""

from __future__ import annotations

from typing import Annotated, Final

from rule_runtime.detectors.curves import LEVEL, first_jump, spike
from rule_runtime.engine.rule import AtLeast, GreaterThan, Unit
from rule_runtime.facts.loss_curves import CurveRule, Finding
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["LossSpike"]

_FEWEST_BEFORE: Final = 5
"""Minimum number of losses before a spike, for their scatter."""


class LossSpike(CurveRule):
    """Detects training losses that jump far above their latest level.

    How it decides:
        The rule compares the last `patience` saved losses with the median of the `num_points`
        before them. Each must exceed it by all of these:
        * `num_deviations` robust standard deviations;
        * twice the largest excess before;
        * `rise_percent` of the loss at the beginning.

        Batches with few rows have a wider limit. A jump to three times the first loss within the
        first 5 is compared with the losses before it. Of several losses, all must spike.

    Parameters:
        patience: Number of consecutive high losses.
        num_points: Saved losses before the spike that it is compared with.
        num_deviations: Robust standard deviations above their median.
        rise_percent: The rise, in percent of the first loss.

    What to try:
        Clip gradients, lower the learning rate or warm it up longer. Look at the batches of these
        steps, and resume from the checkpoint before without them.
    """

    num_points: Annotated[int, AtLeast(5), Unit("saved steps")] = 20
    num_deviations: Annotated[float, GreaterThan(0), Unit("standard deviations")] = 8.0
    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 20.0

    measure = "loss"
    compares_together = True

    @property
    def _window(self) -> tuple[int, int]:
        fewest = max(self.num_points // 4, _FEWEST_BEFORE) + self.patience
        return fewest, self.num_points

    def _detect(self, series: NumberSeries) -> Finding | None:
        """Compare the latest losses with earlier ones."""
        found = self._spike(series, len(series.latest) - self.patience, series.start)
        num = first_jump(series.first, series.rows)
        if num and LEVEL + self.patience <= series.count == len(series.latest):
            found = found or self._spike(series, num, series.first[0])
        if found is None:
            return None
        level, limit = found
        now = float(series.latest[-1])
        return Finding(
            now,
            limit,
            f"is {now:.4g}, above {limit:.4g} for {self.patience} saved steps; the "
            f"median before is {level:.4g}",
        )

    def _spike(self, series: NumberSeries, num: int, start: float) -> tuple[float, float] | None:
        """Compare the latest losses with the given number of losses before them."""
        return spike(
            series.latest[:num],
            series.latest[num:],
            num_deviations=self.num_deviations,
            least_rise=self.rise_percent / 100 * start,
            rows=series.rows,
        )
