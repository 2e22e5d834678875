"""OscillatingLoss: a loss that jumps up and down without getting anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome
from rule_runtime.engine.rule import AtLeast, GreaterThan, Unit
from rule_runtime.facts.loss_rule import Finding, LossRule
from rule_runtime.numerics.robust import noise, rank_sum, trend
from rule_runtime.numerics.series_memory import NumberSeries, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["OscillatingLoss"]


_GROWN: Final = 3.0
_Z: Final = 3.5
_OF_TREES: Final = "train-"
_SEVERAL: Final = 2


class OscillatingLoss(LossRule):
    """Finds losses that swing widely and do not fall.

    How it decides:
        The scatter of the latest `num_points` saved losses about their own course is taken from
        the differences of neighbours (median, so that single spikes do not count). It fires if it
        is larger than `amplitude_percent` of the loss at the beginning (median of the first 10),
        and at least three times the scatter there, with a Mann-Whitney test of the differences
        (z above 3.5), while the loss does not fall: the Mann-Kendall test finds no downward trend
        (z above -1.64) and the median of the window is at least half the loss at the beginning.
        So the noise of small batches, which is there from the beginning, is none. A loss that
        changes its sign is not judged, nor are several losses of one worker, but for those of
        boosted trees, of which none may lie clearly below its beginning: the two sides of an
        adversarial training swing against each other. So nothing is judged where weights of two
        models were saved. The losses
        of EVAL and PREDICT steps and of other data sets than `train` are not judged, nor are
        metrics that should grow.

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

    measure: ClassVar[str] = "loss_scatter_percent"
    remedy: ClassVar[str] = "Lower the learning rate, take larger batches or clip gradients."

    num_first: ClassVar[int] = 10
    _NO_TREND: ClassVar[float] = -1.64

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return self.num_points

    @property
    def num_needed(self) -> int:
        """Return how many losses are needed: a beginning, and the window behind it."""
        return self.num_first // 2 + self.num_points

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge losses as all rules of losses do, unless several models are trained.

        Args:
            step: What was saved at the step.
            memory: That of `LossRule`; `models`, the names of at most 2 models.
        """
        models = memory.setdefault("models", [])
        outcome = super().check(step, memory)
        if len(models) < _SEVERAL:
            weights = step.tensors(collections=("weights",)).names
            seen = {*models, *(name.partition("_")[0] for name in weights)}
            models[:] = sorted(seen)[:_SEVERAL]
        if len(models) < _SEVERAL or not isinstance(outcome, IssueFound):
            return outcome
        return NotEvaluated(f"the models {' and '.join(models)} may be trained against each other")

    def _excused(self, history: SeriesMemory, worker: str) -> bool:
        """Tell whether a worker has several losses, which are not those of boosted trees."""
        names = [name for name, of in history.names if of == worker]
        of_trees = all(name.startswith(_OF_TREES) for name in names)
        return super()._excused(history, worker) if of_trees else len(names) > 1

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:  # noqa: ARG002
        """Measure the scatter of the window.

        Args:
            series: The losses.
            num_steps: Not used.
        """
        first, latest = series.first, series.latest
        numbers = series.whole
        scale = abs(float(np.median(first)))
        if not ((numbers > 0).all() or (numbers < 0).all()):
            return None
        amplitude = 100 * noise(latest) / scale
        is_low = np.median(latest) < scale / 2
        if amplitude <= self.amplitude_percent or (is_low and numbers[0] > 0):
            return None
        has_grown = noise(latest) >= _GROWN * noise(first)
        if not has_grown or rank_sum(np.abs(np.diff(latest)), np.abs(np.diff(first))) <= _Z:
            return None
        z = trend(latest)
        if z <= self._NO_TREND:
            return None
        return Finding(
            amplitude,
            amplitude,
            self.amplitude_percent,
            f"scatters by {amplitude:.3g} % of {scale:.4g} at the beginning, more than "
            f"{self.amplitude_percent:g} %, and does not fall (z {z:.2f})",
        )
