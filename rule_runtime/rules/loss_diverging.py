"""LossDiverging: detects losses that rise above their beginning, or far above their best."""

from __future__ import annotations

from typing import Annotated

from rule_runtime.detectors.curves import LEVEL, WINDOW, divergence
from rule_runtime.engine.rule import GreaterThan, Unit
from rule_runtime.facts.loss_curves import CurveRule, Finding
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["LossDiverging"]


class LossDiverging(CurveRule):
    """Detects training losses that rise and stay high.

    How it decides:
        The rule fires if one of these holds at `patience` saved steps in a row:
        * The latest 30 losses are all higher than the first one by `rise_percent`.
        * The latest 8 are all higher than the best level by `rise_percent`, and do not fall again.

        Either rise must be four times the scatter, and more than chance for batches with few rows.
        After a jump to three times the first loss within the first 5, the losses need not be
        steady, only three times higher. Of several losses, all must diverge.

    Parameters:
        patience: Saved steps in a row.
        rise_percent: The rise, in percent of the first loss.

    What to try:
        Lower the learning rate or warm it up, clip gradients, and resume from the last good
        checkpoint.
    """

    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 50.0

    measure = "loss_rise_percent"

    @property
    def _window(self) -> tuple[int, int]:
        return LEVEL, WINDOW

    def _detect(self, series: NumberSeries) -> Finding | None:
        """Compare the latest losses with the first loss and the best level."""
        share = self.rise_percent / 100
        found = divergence(series.first, series.whole, share, series.rows)
        if found is None:
            return None
        rise, limit = (
            100 * (level - found.before) / found.scale for level in (found.now, found.limit)
        )
        return Finding(
            rise,
            limit,
            f"rose from {found.before:.4g} to {found.now:.4g}, by {rise:.3g} % of "
            f"{found.scale:.4g} at the beginning, more than {limit:.3g} %",
        )
