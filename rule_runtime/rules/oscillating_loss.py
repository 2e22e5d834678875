"""OscillatingLoss: detects losses that jump up and down without falling."""

from __future__ import annotations

from typing import Annotated

from rule_runtime.detectors.curves import oscillation
from rule_runtime.engine.rule import AtLeast, GreaterThan, Unit
from rule_runtime.facts.loss_curves import CurveRule, Finding
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["OscillatingLoss"]


class OscillatingLoss(CurveRule):
    """Detects training losses that swing widely and do not fall.

    How it decides:
        The rule looks at the latest `num_points` saved losses. It fires if all of these hold:
        * Their scatter exceeds `amplitude_percent` of the loss at the beginning.
        * Neighbours differ more than among the first 10.
        * Neighbours differ more than batches with so few rows do by chance.
        * They have no downward trend, stay above half of the beginning, and have not fallen by more
          than they scatter.

        Ranks with several losses are ignored.

    Parameters:
        patience: Saved steps in a row.
        num_points: Saved losses whose scatter is measured.
        amplitude_percent: The scatter, in percent of the first loss.

    What to try:
        Lower the learning rate, take larger batches or clip gradients.
    """

    num_points: Annotated[int, AtLeast(10), Unit("saved steps")] = 20
    amplitude_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = (
        30.0
    )

    measure = "loss_scatter_percent"
    num_first = 10
    needs_single_curve = True

    @property
    def _window(self) -> tuple[int, int]:
        return self.num_first // 2 + self.num_points, self.num_points

    def _detect(self, series: NumberSeries) -> Finding | None:
        """Measure the scatter of the latest losses."""
        amplitude = 100 * oscillation(series.first, series.latest[-self.num_points :], series.rows)
        if amplitude <= self.amplitude_percent:
            return None
        return Finding(
            amplitude,
            self.amplitude_percent,
            f"scatters by {amplitude:.3g} % of its beginning, more than "
            f"{self.amplitude_percent:g} %, and does not fall",
        )
