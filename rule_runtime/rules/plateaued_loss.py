"""PlateauedLoss: a loss that stays where it began."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotApplicable, Outcome
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Unit
from rule_runtime.facts.learned_frequencies import LearnedFrequencies
from rule_runtime.facts.loss_rule import Finding, LossRule
from rule_runtime.facts.made_up_targets import of_made_up_targets
from rule_runtime.facts.selection import evidence
from rule_runtime.facts.unrelated_outputs import added_unrelated
from rule_runtime.facts.warm_up import steps_since_warm_up
from rule_runtime.numerics.robust import noise, trend
from rule_runtime.numerics.series_memory import NumberSeries, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["PlateauedLoss"]

_BIN_STEPS: Final = 5
_NUM_BINS: Final = 10
_NUM_IN_NOISE: Final = 20
_NUM_LATEST: Final = 30
_FALLING: Final = -1.64
_SMOOTH: Final = 1e-3
_BEGINNING: Final = 3
_LATE: Final = 3
_OF_TREES: Final = "train-"


class PlateauedLoss(LossRule):
    """Finds losses that hardly fell since the training began.

    How it decides:
        Losses are averaged over bins of 5 steps; the first 10 bins and the latest 30 are looked at,
        at least 20 in all, or 10 if the loss has next to no noise (0.1 %). The smallest median of a
        third of them in a row is compared with the loss at the beginning: the median of the first
        third, or of the first 3 if that is larger. Until `num_steps` steps have passed it must be
        lower by a share of `min_fall_percent` that grows with the steps, from a third of them on;
        from then on by all of it.

        It is quiet as well where nothing can be told: if the Mann-Kendall test finds a downward
        trend (z of -1.64 or below; not counted if the fall is less than half of what is needed and
        there is next to no noise), if the noise of neighbours makes the difference uncertain by
        half of `min_fall_percent` or more, and if the loss is below zero. After three times
        `num_steps` only the latest 30 bins need a trend if the fall is less than half of what is
        needed: from its first scores to guessing any model falls. Where weights are saved beside
        the loss, steps are counted from when their movement last grew (that is a warm-up): the
        median of 3 by a fifth, or, near the largest one, by 40 % within 20 saved steps, with an
        upward trend of z 3 or more; and only those saved ones behind which weights had moved, if
        some had not: there gradients are accumulated. If no weight ever moved, all count after 200.

        The loss of boosted trees falls a little in each round however little there is to learn: it
        is left alone as long as it has a downward trend (see LearningRateTooLow).
        * Where `labels` and `predictions` of classes were saved with values, a loss that fell is
          found as well if all that was learned is how frequent classes are. The entropy of the
          labels so far (with Miller's correction, of at most 64 classes with 20 labels each, and
          not less than 0.6 of ln(number of classes)) is the best that one answer for all rows can
          give a cross entropy. After `num_steps` steps the median of the latest 20 bins must be
          lower than that by `min_fall_percent`. It fires if, `patience` bins in a row, it is not,
          the bins have no downward trend, or fall by less than a tenth of that from the first third
          to the last, twice the error of their median is less than `min_fall_percent`, and of what
          chance leaves less than 10 % was right in the latest 20 saved steps (Cohen's kappa). Of
          BCELoss and BCEWithLogitsLoss targets of 0 and 1 suffice, if the first loss was 0.85 to
          1.3 times ln 2 (no class has a weight), and of a loss that is the cross entropy of two
          classes by the values that were saved; where rows have several columns, and `labels` are
          these, each has its own frequency. MSELoss is compared in the same way, in parts of the
          variance of the 20 or more targets of each batch, up to 1.1 of it, unless batches are of
          groups, or it was higher by more than `min_fall_percent` in the 5 to 20 bins before the
          latest 20: in a short stretch noise hides a steady fall.
        * Where values of outputs and targets of an only loss were saved, it is found, too, if they
          have nothing to do with each other: in the latest 3 such steps, not the first one, their
          correlation over all columns (scores of classes against one-hot classes) is within 2
          standard deviations of chance, by the permutation test, and these are 0.1 at most;
          `num_steps` have passed, the latest 20 bins have no downward trend, and values are not
          older than they lie apart. A loss of another name must prove to be of their differences.

        A loss that fell enough once, and then stands still, has converged and is no finding. With
        several losses none is judged while one of them lies clearly below its beginning. Losses of
        EVAL and PREDICT steps and of other data sets than `train` are not judged, metrics that
        should grow neither, nor losses of 16 targets or more that are all -1, 0 or 1: adversaries.

    Parameters:
        num_steps: Steps after which the loss must have fallen by `min_fall_percent`.
        min_fall_percent: The fall, in percent of the loss at the beginning.
        patience: How many bins in a row.

    What to try:
        Check that labels belong to their inputs and that the loss fits the task; a higher learning
        rate; a better initialisation; look for layers without gradient.
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

    num_first: ClassVar[int] = _NUM_BINS
    why_left_out: ClassVar[str] = "its targets are all the same, as an adversarial training has it"
    left_out = staticmethod(of_made_up_targets)

    @property
    def num_latest(self) -> int:
        """Return the length of the window."""
        return _NUM_LATEST

    @property
    def num_needed(self) -> int:
        """Return how many bins are needed."""
        return _NUM_BINS

    @property
    def bin_steps(self) -> int:
        """Return how many steps are averaged."""
        return _BIN_STEPS

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge losses by their beginning, and by how frequent classes are.

        Args:
            step: What was saved at the step.
            memory: That of `LossRule`; `elapsed`, the steps of training that count; `frequencies`,
                that of `LearnedFrequencies`; `unrelated`, that of `added_unrelated`;
                `alike`, bins in a row in which frequencies were all.
        """
        outcome = super().check(step, memory)
        if isinstance(outcome, (IssueFound, NotApplicable)):
            return outcome
        unrelated = self._unrelated(step, memory)
        if unrelated is not None:
            return unrelated
        frequencies = LearnedFrequencies(memory.setdefault("frequencies", {}))
        learned = frequencies.add(step)
        if learned is None:
            return outcome
        is_late = memory.get("elapsed", 0) >= self.num_steps
        is_bad = is_late and learned.is_all(self.min_fall_percent / 100)
        memory["alike"] = min(memory.get("alike", 0) + 1, self.patience) if is_bad else 0
        if not is_bad or memory["alike"] < self.patience:
            return outcome
        rows = step.tensors(collections=("losses",))
        fall = 100 * (1 - learned.loss / learned.entropy)
        return IssueFound(
            evidence(
                step,
                rows,
                learned.row,
                measure=self.measure,
                value=fall,
                threshold=self.min_fall_percent,
                message=learned.message,
                remedy=self.remedy,
            )
        )

    def _unrelated(self, step: StepView, memory: Memory) -> IssueFound | None:
        """Return what is found if outputs have nothing to do with targets."""
        found = added_unrelated(step, memory.setdefault("unrelated", {}))
        if found is None or not found.is_sure or memory.get("elapsed", 0) < self.num_steps:
            return None
        rows = step.tensors(collections=("losses",))
        history = SeriesMemory(
            memory.get("history", {}), num_first=self.num_first, num_latest=self.num_latest
        )
        names = (rows.names[found.row], rows.workers[found.row])
        if names not in history.names:
            return None
        latest = history.of(names).latest[-_NUM_IN_NOISE:]
        if len(latest) < _NUM_IN_NOISE or trend(latest) <= _FALLING:
            return None
        return IssueFound(
            evidence(
                step,
                rows,
                found.row,
                measure="correlation",
                value=found.share,
                threshold=2 * found.deviation,
                message="is of outputs that have nothing to do with their targets: they go with "
                f"those of other rows as well, with a correlation of {found.share:.2g} where "
                f"chance gives {found.deviation:.2g}",
                remedy=self.remedy,
            )
        )

    def elapsed(self, step: StepView, memory: Memory) -> int:
        """Return the steps that count, and remember them.

        Args:
            step: What was saved at the step.
            memory: That of the rule, and of `steps_since_warm_up`.
        """
        counted = steps_since_warm_up(step, memory)
        memory["elapsed"] = super().elapsed(step, memory) if counted is None else counted
        return int(memory["elapsed"])

    def judge_named(self, name: str, series: NumberSeries, num_steps: int) -> Finding | None:
        """Judge a loss, but leave boosted trees alone as long as theirs falls.

        Args:
            name: Name of the loss.
            series: The means of the bins.
            num_steps: Steps since the first one with a loss.
        """
        if name.startswith(_OF_TREES) and trend(series.whole) <= _FALLING:
            return None
        return self.judge(series, num_steps)

    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:
        """Compare the latest bins with the first ones.

        Args:
            series: The means of the bins.
            num_steps: Steps since the first one with a loss.
        """
        means = series.whole
        third = min(len(means) // 3, _NUM_BINS)
        start = float(max(np.median(means[:_BEGINNING]), np.median(means[:third])))
        windows = np.lib.stride_tricks.sliding_window_view(means, third)
        now = float(np.median(windows, axis=1).min())
        needed = min(num_steps / self.num_steps, 1.0) * self.min_fall_percent
        if num_steps < self.num_steps / 3 or means.min() <= 0:
            return None
        fall = 100 * (start - now) / abs(start)
        scatter = 100 * noise(means) / abs(start)
        # That of the difference of two medians, each of a third of the bins.
        error = math.sqrt(math.pi / 2) * scatter * math.sqrt(2 / third)
        is_smooth = scatter < 100 * _SMOOTH and fall < needed / 2
        if len(means) < _NUM_IN_NOISE and not is_smooth:
            return None
        if fall >= needed or 2 * error >= self.min_fall_percent:
            return None
        is_late = num_steps >= _LATE * self.num_steps and fall < needed / 2
        # What fell at the beginning only, as from the first scores to guessing, is no trend.
        still = series.latest if is_late else means
        if trend(still) <= _FALLING and not is_smooth:
            return None
        moved = f"fell by {fall:.3g} %" if fall >= 0 else f"rose by {-fall:.3g} %"
        return Finding(
            -fall,
            fall,
            needed,
            f"is {now:.4g} and was {start:.4g} at the beginning: it {moved}, and should have "
            f"fallen by {needed:.3g} % by now",
        )
