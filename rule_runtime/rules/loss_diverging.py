"""LossDiverging: a loss that rises above where it began, or far above its best."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np

from rule_runtime.evaluation.loss_rule import Finding, LossRule
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, Unit
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["LossDiverging"]

_SMOOTHED: Final = 5
_BEST_OF: Final = 30


class LossDiverging(LossRule):
    """Finds losses that rise and stay high.

    What it detects:
        A training loss whose recent median lies far above its own best of late, measured in what
        the loss was at the beginning.

    Why it matters:
        A training that diverges rarely comes back; what was learned is lost.

    How it decides:
        Of each training loss the median of the latest 5 saved ones is compared with the smallest
        such median among the latest 30, and with the first losses. It fires if it lies above both
        by more than `rise_percent` of the loss at the beginning, `patience` times in a row. The
        loss at the beginning is the first saved one, or the median of the first 5 if that is
        smaller. So the scatter of losses that are small by now does not count. Losses that are
        not finite are passed over (NonFinite finds them). The losses of EVAL and PREDICT steps
        are not judged.

    Parameters:
        rise_percent: The rise, in percent of the loss at the beginning.
        patience: How many saved steps in a row.

    What to try:
        A lower learning rate, a warm-up, gradient clipping; go back to the last good checkpoint.

    Known false alarms:
        Losses whose weight or temperature is raised on purpose; adversarial training; curricula
        that become harder.

    Source:
        Stepwatch; the relative threshold is that of "diverging loss" in TheDeepChecker (2022).
    """

    rise_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 50.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    measure: ClassVar[str] = "loss_rise_percent"
    remedy: ClassVar[str] = (
        "Lower the learning rate or warm it up, clip gradients, and go on from the last good "
        "checkpoint."
    )

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return _BEST_OF

    @property
    def num_needed(self) -> int:
        """Return how many losses are needed."""
        return _SMOOTHED

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:  # noqa: ARG002
        """Compare the smoothed loss with its best and with the beginning.

        Args:
            series: The losses.
            num_steps: Not used.
        """
        latest = series.latest
        smoothed = np.median(np.lib.stride_tricks.sliding_window_view(latest, _SMOOTHED), axis=1)
        now, best = float(smoothed[-1]), float(min(smoothed.min(), series.first[0]))
        if series.count <= len(latest):
            best = min(best, float(latest.min()))
        rise = 100 * (now - best) / series.start if series.start else 0.0
        if rise <= self.rise_percent:
            return None
        return Finding(
            rise,
            rise,
            self.rise_percent,
            f"rose to {now:.4g} from {best:.4g}, by {rise:.3g} % of {series.start:.4g} at the "
            f"beginning, more than {self.rise_percent:g} %",
        )
