"""LossDiverging: a loss that rises above where it began, or far above its best."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from rule_runtime.engine.rule import AtLeast, GreaterThan, Unit
from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_rule import Finding, LossRule
from rule_runtime.facts.made_up_targets import of_made_up_targets
from rule_runtime.numerics.robust import noise, spread, trend
from rule_runtime.numerics.series_memory import NumberSeries, Series

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossDiverging"]

_NUM_NEEDED: Final = 10
_WINDOW: Final = 30
_LATEST: Final = 8
_BEST: Final = 10
_NUM_NOISE: Final = 3.0
_NUM_SCATTER: Final = 4.0
_NUM_ENDS: Final = 3
_RECOVERING: Final = 0.1
_FALLING: Final = -1.5
_YES_OR_NO: Final = 2


class LossDiverging(LossRule):
    """Finds losses that rise and stay high.

    How it decides:
        Of each training loss the latest saved numbers are looked at, `patience` times in a row. It
        fires in two cases. Above the beginning: the latest 30, or those there are behind the first,
        are all larger than the first loss by more than `rise_percent`, and the distance of their
        median is more than four times their scatter (about the median and between neighbours, the
        larger; of logarithms, so that heavy tails do not count). Back again: the latest 8 are all
        larger than the best 10 in a row among the latest 30, and the medians differ by more than
        `rise_percent` of the loss at the beginning (the first one, or the median of the first 5 if
        that is larger) and by more than three times the noise; unless it comes down again, as
        behind the beginning of a second training of the same model: by a tenth of the rise from the
        first 3 of these 8 to the last 3, and by the test of Mann and Kendall (z below -1.5).

        A negative loss is compared with the beginning only, without logarithms; a loss that changes
        its sign, or a negative one that begins within the noise about zero, is not judged. With
        several losses none is judged while one of them lies clearly below its beginning: they are
        weighed against each other. That is one whose latest 5 are all below its first 5, their
        median by a tenth; or whose latest 5 are positive, with a median below half of the first
        one, and by more than three times the noise. Nor is a cross entropy of three classes or more
        whose targets are all 0, or all 1, in a step of 16 or more: a contrastive loss, whose right
        answer always stands in the same place. It rises as candidates become harder, as while a
        queue fills.
        Losses that are not finite are passed over (NonFinite finds them). The losses of EVAL and
        PREDICT steps and of other data sets than `train` are not judged, nor are metrics that
        should grow.

    Parameters:
        rise_percent: The rise, in percent of the loss at the beginning.
        patience: How many saved steps in a row.

    What to try:
        A lower learning rate, a warm-up, gradient clipping; go back to the last good checkpoint.
    """

    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 50.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    measure: ClassVar[str] = "loss_rise_percent"
    remedy: ClassVar[str] = (
        "Lower the learning rate or warm it up, clip gradients, and go on from the last good "
        "checkpoint."
    )

    why_left_out: ClassVar[str] = (
        "all right answers stand in the same place, as in a contrastive training, whose loss rises "
        "as the other candidates become harder"
    )

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return _WINDOW

    @property
    def num_needed(self) -> int:
        """Return how many losses are needed."""
        return _NUM_NEEDED

    def left_out(self, step: StepView, losses: Collection[Series]) -> AbstractSet[Series]:
        """Return the losses of a step that compare one candidate with others.

        Args:
            step: What was saved at the step.
            losses: Names and workers of its losses of training.
        """
        inputs = step.fact(LossInputs)
        return {
            names
            for names in of_made_up_targets(step, losses)
            if inputs.kind(*names).is_of_classes and (inputs.num_classes(*names) or 0) > _YES_OR_NO
        }

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:  # noqa: ARG002
        """Compare the latest losses with the beginning and with the best ones.

        Args:
            series: The losses.
            num_steps: Not used.
        """
        numbers = series.whole
        if (numbers > 0).all():
            return self._above_beginning(series, np.log) or self._back_again(series)
        is_far = abs(series.first[0]) > _NUM_NOISE * noise(series.first)
        if (numbers < 0).all() and is_far:
            return self._above_beginning(series, np.positive)
        return None

    def _above_beginning(self, series: NumberSeries, scaled: np.ufunc) -> Finding | None:
        first = float(series.first[0])
        latest = series.latest[-min(_WINDOW, series.count - 1) :]
        limit = first + abs(first) * self.rise_percent / 100
        now = float(np.median(latest))
        distance = float(scaled(now) - scaled(first))
        scatter = max(noise(scaled(latest)), spread(scaled(latest)))
        if latest.min() <= limit or distance <= _NUM_SCATTER * scatter:
            return None
        return self._finding(now, first, abs(first))

    def _back_again(self, series: NumberSeries) -> Finding | None:
        if len(series.latest) < _LATEST + _BEST:
            return None
        latest, before = series.latest[-_LATEST:], series.latest[:-_LATEST]
        windows = np.lib.stride_tricks.sliding_window_view(before, _BEST)
        best = windows[np.lexsort((windows.max(axis=1), np.median(windows, axis=1)))[0]]
        now, then = float(np.median(latest)), float(np.median(best))
        rise = now - then
        is_apart = latest.min() > best.max() and rise > _NUM_NOISE * noise(series.latest)
        if not is_apart or rise <= self.rise_percent / 100 * series.start:
            return None
        fall = float(np.median(latest[:_NUM_ENDS]) - np.median(latest[-_NUM_ENDS:]))
        if fall > _RECOVERING * rise and trend(latest) < _FALLING:
            return None
        return self._finding(now, then, series.start)

    def _finding(self, now: float, then: float, start: float) -> Finding:
        rise = 100 * (now - then) / start
        return Finding(
            rise,
            rise,
            self.rise_percent,
            f"rose to {now:.4g} from {then:.4g}, by {rise:.3g} % of {start:.4g} at the beginning, "
            f"more than {self.rise_percent:g} %",
        )
