"""LearningRateTooLow: weights that hardly move while there is all to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.loss_rule import training_losses
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, finite_means, is_training
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import SeriesMemory
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LearningRateTooLow"]

_NUM_FIRST: Final = 5
_NUM_LATEST: Final = 20
_NUM_NOW: Final = 5
_NOISY: Final = 1.5
_WARMING_UP: Final = 1.5
_REMEDY: Final = "Raise the learning rate tenfold, and look whether a schedule lowers it too early."


class LearningRateTooLow(Rule):
    """Finds updates so small that nothing is learned.

    What it detects:
        Weights that move by a tiny part of their size in a step, over many steps, though there are
        gradients and the loss is about as high as at the beginning.

    Why it matters:
        The training would take a hundred times as long as it needs to.

    How it decides:
        How far a single element of a weight moves is estimated from the change of minimum, maximum,
        mean and standard deviation between two saved training steps, in units of the weight's root
        mean square, divided by the number of steps. It fires if the median over the weights has
        been smaller than `min_update_ratio` for `num_steps` steps, and each loss has fallen by less
        than `max_fall_percent` since the beginning (median of the latest 5 against the smaller of
        the first one and the median of the first 5; with noise of more than 1.5 times this share
        nothing can be told, and it is quiet), and some gradient is not zero where gradients
        are saved. While the movement is still growing, by half over the window, it waits: that is a
        warm-up. Weights that do not move at all while others do are left out (DeadOptimizer,
        MissingGradient). At the end of a schedule the loss has fallen, so it is quiet. The exact
        update ratio needs the values themselves: see WeightUpdateRatio. Of more than 64 weights 64
        evenly spread by name are followed.

    Parameters:
        min_update_ratio: Movement in a step, in parts of the weight's root mean square.
        num_steps: Steps for which it must have been smaller.
        max_fall_percent: Fall of the loss from which on the training counts as learning.

    What to try:
        Ten times the learning rate; look at the schedule.

    Known false alarms:
        Fine-tuning with a very small learning rate, if the loss has little noise; warm-ups so
        slow that the movement grows by less than half in `num_steps` steps.

    Source:
        Stepwatch; a ratio of 10^-4 is where TheDeepChecker (2022) begins to warn.
    """

    min_update_ratio: Annotated[float, GreaterThan(0), Unit("of the rms per step")] = 1e-4
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 50
    max_fall_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 10.0

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
        CollectionConfig("losses", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure how far the weights moved, and whether the loss fell.

        Args:
            step: What was saved at the step.
            memory: `drift`: statistics of at most 64 weights; `losses`: first and latest numbers of
                at most 32 losses; `since`: where the small movement began, and what it was there.
        """
        if not is_training(step):
            return NotEvaluated(f"in mode {step.mode.name} no weight changes")
        rows = step.tensors(collections=("weights",))
        has_fallen = self._has_fallen(step, memory)
        if not len(rows) or has_fallen is None:
            return NotEvaluated("weights and losses are needed, and were not saved together")
        drift = WeightDrift(memory.get("drift", {}))
        columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
        pairs = list(zip(rows.names, rows.workers, strict=True))
        since = drift.step
        _, moved, names = drift.advance(step.mode_step, pairs, columns)
        memory["drift"] = drift.to_json()
        if not names:
            return NotEvaluated("there is no earlier step to compare the weights with")
        moving = moved[moved > 0]
        middle = float(np.median(moving)) if moving.size else 0.0
        if not self._is_too_low(step, middle, since, memory) or has_fallen:
            return Passed()
        slowest = names[min(range(len(names)), key=lambda at: (moved[at] or np.inf, names[at]))]
        told = (
            f"moved least; the median weight moves by {middle:.3g} of its size in a step, less "
            f"than {self.min_update_ratio:g}, since step {memory['since'][0]}, and the loss has "
            "not fallen"
        )
        return IssueFound(
            evidence(
                step,
                rows,
                pairs.index(slowest),
                measure="update_ratio",
                value=middle,
                threshold=self.min_update_ratio,
                told=told,
                remedy=_REMEDY,
            )
        )

    def _is_too_low(self, step: StepView, moved: float, since: int | None, memory: Memory) -> bool:
        """Tell whether weights moved too little for long enough, and do not begin to move."""
        if not 0 < moved < self.min_update_ratio or not _has_gradients(step):
            memory.pop("since", None)
            return False
        begin, first = memory.setdefault("since", [since, moved])
        if moved > _WARMING_UP * first:
            memory["since"] = [since, moved]
            return False
        return bool(step.mode_step - begin >= self.num_steps)

    def _has_fallen(self, step: StepView, memory: Memory) -> bool | None:
        """Tell whether a loss has, or may have, fallen since the beginning; None without any."""
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        history = SeriesMemory(
            memory.get("losses", {}), num_first=_NUM_FIRST, num_latest=_NUM_LATEST
        )
        kept = history.add(
            {names: float(means[at]) for names, at in training_losses(step, rows, means).items()}
        )
        memory["losses"] = history.to_json()
        falls = []
        for series in kept:
            numbers = history.of(series)
            start = min(float(numbers.first[0]), float(np.median(numbers.first)))
            fall = start - float(np.median(numbers.latest[-_NUM_NOW:]))
            is_unclear = noise(numbers.latest) > _NOISY * self._needed(start)
            falls.append(fall > self._needed(start) or is_unclear)
        return any(falls) if falls else None

    def _needed(self, start: float) -> float:
        return abs(start) * self.max_fall_percent / 100


def _has_gradients(step: StepView) -> bool:
    """Tell whether a gradient is not zero; True as well if none is saved."""
    rows = step.tensors(collections=("gradients",))
    return not len(rows) or bool((np.nan_to_num(rows.column("l2")) > 0).any())
