"""OscillatingLoss: a loss that jumps up and down without falling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.oscillation import oscillation
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss_curves import CurveTest, Finding, judge_curves

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Outcome
    from rule_runtime.numerics.series_memory import NumberSeries
    from rule_runtime.trial.step_view import StepView

__all__ = ["OscillatingLoss"]

_NUM_FIRST: Final = 10
"""Saved losses whose scatter is that of the beginning."""


class OscillatingLoss(Rule):
    """Detects training losses that swing widely and do not fall.

    How it decides:
        The scatter between neighbours among the latest `num_points` saved losses must exceed
        `amplitude_percent` of the loss at the beginning. It must also be three times the scatter at
        the beginning, so the noise of small batches does not count. The loss must have no downward
        trend and be above half of its beginning.

    Parameters:
        num_points: Saved losses that are looked at.
        amplitude_percent: The scatter, in percent of the loss at the beginning.
        patience: How many saved steps in a row.

    What to try:
        A lower learning rate, a larger batch, gradient clipping.
    """

    num_points: Annotated[int, AtLeast(10), Unit("saved steps")] = 20
    amplitude_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = (
        30.0
    )
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (CollectionConfig("losses", {"save_interval": "10"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure the scatter of the latest losses.

        Args:
            step: What was saved at the step.
            memory: That of `judge_curves`.
        """
        test = CurveTest(
            detect=self._detect,
            measure="loss_scatter_percent",
            remedy="Lower the learning rate, take larger batches or clip gradients.",
            num_first=_NUM_FIRST,
            num_latest=self.num_points,
            num_needed=_NUM_FIRST // 2 + self.num_points,
            patience=self.patience,
        )
        return judge_curves(step, memory, test)

    def _detect(self, series: NumberSeries) -> Finding | None:
        amplitude = 100 * oscillation(series.first, series.latest)
        if amplitude <= self.amplitude_percent:
            return None
        return Finding(
            amplitude,
            amplitude,
            self.amplitude_percent,
            f"scatters by {amplitude:.3g} % of its beginning, more than "
            f"{self.amplitude_percent:g} %, and does not fall",
        )
