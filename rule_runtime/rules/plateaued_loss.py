"""PlateauedLoss: a loss that stays where it began."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np

from rule_runtime.evaluation.loss_rule import Finding, LossRule
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, LessThan, Unit
from rule_runtime.numerics.series_memory import NumberSeries

__all__ = ["PlateauedLoss"]

_BIN_STEPS: Final = 5
_SMOOTHED: Final = 5


class PlateauedLoss(LossRule):
    """Finds losses that hardly fell since the training began.

    What it detects:
        A training loss that is still about as high as at the beginning after many steps.

    Why it matters:
        The model does not learn, and costs as if it did.

    How it decides:
        Losses are averaged over bins of 5 steps. The median of the latest 5 bins is compared with
        the loss at the beginning: the first bin, or the median of the first 5 bins if that is
        larger. Until `num_steps` steps have passed it must have fallen by a share of
        `min_fall_percent` that grows with the steps, from a third of them on; from then on by all
        of it. A loss below zero at the beginning is measured by its size. A loss that fell enough
        once, and then stands still, has converged and is no finding. The losses of EVAL and PREDICT
        steps are not judged.

    Parameters:
        num_steps: Steps after which the loss must have fallen by `min_fall_percent`.
        min_fall_percent: The fall, in percent of the loss at the beginning.
        patience: How many bins in a row.

    What to try:
        Check that labels belong to their inputs and that the loss fits the task; a higher learning
        rate; a better initialisation; look for layers without gradient.

    Known false alarms:
        Fine-tuning of a model that is good already; tasks with very little to learn; losses of
        adversarial training.

    Source:
        Stepwatch, in place of the two-point comparison of LossNotDecreasing.
    """

    num_steps: Annotated[int, AtLeast(15), Unit("steps")] = 150
    min_fall_percent: Annotated[
        float, GreaterThan(0), LessThan(100), Unit("% of the loss at the beginning")
    ] = 5.0
    patience: Annotated[int, AtLeast(1), Unit("bins of 5 steps")] = 2

    measure: ClassVar[str] = "loss_fall_percent"
    remedy: ClassVar[str] = (
        "Check that labels belong to their inputs and that the loss fits the task; try another "
        "learning rate; look for layers that get no gradient."
    )

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return _SMOOTHED

    @property
    def num_needed(self) -> int:
        """Return how many bins are needed."""
        return _SMOOTHED

    @property
    def bin_steps(self) -> int:
        """Return how many steps are averaged."""
        return _BIN_STEPS

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:
        """Compare the latest bins with the beginning.

        Args:
            series: The means of the bins.
            num_steps: Steps since the first one with a loss.
        """
        start = float(max(series.first[0], np.median(series.first)))
        now = float(np.median(series.latest))
        scale = abs(start) or 1.0
        fall = 100 * (start - now) / scale
        needed = min(num_steps / self.num_steps, 1.0) * self.min_fall_percent
        if fall >= needed or num_steps < self.num_steps / 3:
            return None
        return Finding(
            -fall,
            fall,
            needed,
            f"is {now:.4g} and was {start:.4g} at the beginning: it fell by {fall:.3g} %, less "
            f"than {needed:.3g} %",
        )
