"""LossDiverging: a loss that rises above where it began, or far above its best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.divergence import NUM_FIRST, WINDOW, divergence
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss_curves import CurveTest, Finding, judge_curves

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Outcome
    from rule_runtime.numerics.series_memory import NumberSeries
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossDiverging"]

_NUM_NEEDED: Final = 10
"""Saved losses below which one spike would be most of what is known."""

_REMEDY: Final = (
    "Lower the learning rate or warm it up, clip gradients, and resume from the last good "
    "checkpoint."
)


class LossDiverging(Rule):
    """Detects training losses that rise and stay high.

    How it decides:
        Above the beginning: the latest 30 saved losses are all higher than the first one by
        `rise_percent`. Above the best: the latest 8 are all higher than the best 10 in a row of
        these 30, by `rise_percent` of the loss at the beginning, and do not fall again. Either rise
        must be four times the scatter. Losses that are not positive, or whose targets are all the
        same, are not judged.

    Parameters:
        rise_percent: The rise, in percent of the loss at the beginning.
        patience: How many saved steps in a row.

    What to try:
        A lower learning rate, a warm-up, gradient clipping. Resume from the last good checkpoint.
    """

    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 50.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (CollectionConfig("losses", {"save_interval": "10"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the latest losses with the first one and with the best.

        Args:
            step: What was saved at the step.
            memory: That of `judge_curves`.
        """
        test = CurveTest(
            detect=self._detect,
            measure="loss_rise_percent",
            remedy=_REMEDY,
            num_first=NUM_FIRST,
            num_latest=WINDOW,
            num_needed=_NUM_NEEDED,
            patience=self.patience,
        )
        return judge_curves(step, memory, test)

    def _detect(self, series: NumberSeries) -> Finding | None:
        found = divergence(series.whole, self.rise_percent / 100)
        if found is None:
            return None
        rise = 100 * (found.now - found.before) / series.start
        return Finding(
            rise,
            rise,
            self.rise_percent,
            f"rose from {found.before:.4g} to {found.now:.4g}, by {rise:.3g} % of "
            f"{series.start:.4g} at the beginning, more than {self.rise_percent:g} %",
        )
