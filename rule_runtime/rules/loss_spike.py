"""LossSpike: a loss that jumps far out of what it was just before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.spike import spike
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss_curves import CurveTest, Finding, judge_curves

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Outcome
    from rule_runtime.numerics.series_memory import NumberSeries
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossSpike"]

_FEWEST_BEFORE: Final = 5
"""Losses before the spike without which nothing is known of their scatter."""

_REMEDY: Final = (
    "Clip gradients, lower the learning rate or warm it up longer. Look at the batches of these "
    "steps, and resume from the checkpoint before without them."
)


class LossSpike(Rule):
    """Detects training losses that jump far above their latest level.

    How it decides:
        The last `patience` saved losses are compared with the `num_points` before them. Each must
        exceed their median by `num_deviations` robust standard deviations, by twice the largest
        excess before, and by `rise_percent` of the loss at the beginning.

    Parameters:
        num_points: Saved losses before the spike that it is compared with.
        num_deviations: Robust standard deviations above their median.
        rise_percent: The rise, in percent of the loss at the beginning.
        patience: How many saved losses in a row must be high.

    What to try:
        Gradient clipping, a lower learning rate, a longer warm-up. Look at the batches of these
        steps and resume from the checkpoint before without them.
    """

    num_points: Annotated[int, AtLeast(5), Unit("saved steps")] = 20
    num_deviations: Annotated[float, GreaterThan(0), Unit("standard deviations")] = 8.0
    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 20.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (CollectionConfig("losses", {"save_interval": "10"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the latest losses with those before.

        Args:
            step: What was saved at the step.
            memory: That of `judge_curves`.
        """
        test = CurveTest(
            detect=self._detect,
            measure="loss",
            remedy=_REMEDY,
            num_latest=self.num_points + self.patience,
            num_needed=max(self.num_points // 4, _FEWEST_BEFORE) + self.patience,
        )
        return judge_curves(step, memory, test)

    def _detect(self, series: NumberSeries) -> Finding | None:
        before, now = series.latest[: -self.patience], series.latest[-self.patience :]
        if series.start == 0:  # a loss that is switched on later begins there
            before = np.trim_zeros(before, "f")
        if len(before) < _FEWEST_BEFORE:
            return None
        found = spike(
            before,
            now,
            num_deviations=self.num_deviations,
            least_rise=self.rise_percent / 100 * series.start,
        )
        if not found.is_found:
            return None
        return Finding(
            found.margin,
            float(now[-1]),
            found.limit,
            f"is {now[-1]:.4g}, above {found.limit:.4g} for {self.patience} saved steps; the "
            f"median before is {found.level:.4g}",
        )
