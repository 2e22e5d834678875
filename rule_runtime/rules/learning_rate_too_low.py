"""LearningRateTooLow: weights that hardly move while there is all to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.facts.loss_curves import TrainingLosses
from rule_runtime.facts.selection import evidence, is_training
from rule_runtime.facts.slow_trees import OF_TREES, slow_trees
from rule_runtime.facts.weight_movement import median_of_moving, weight_movement
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import NumberSeries, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LearningRateTooLow"]

_NUM_LEVEL: Final = 5
"""Losses whose median is a level."""

_NUM_LATEST: Final = 20
"""Latest losses whose scatter is the noise."""

_NOISY: Final = 1.5
"""Noise of a loss in parts of the fall that counts: beyond it nobody knows whether it fell."""

_LEARNED: Final = 0.5
"""Share of the largest first loss; one that fell below it within a few steps has learned."""

_WARMING_UP: Final = 1.5
"""Times the first movement; while it grows as much, the learning rate is warmed up."""

_REMEDY: Final = (
    "Raise the learning rate tenfold, unless a schedule has lowered it on purpose. Check whether "
    "gradients vanish on their way to the first layers."
)


class LearningRateTooLow(Rule):
    """Detects updates so small that nothing is learned.

    How it decides:
        The movement of a weight is estimated from its extremes, mean and standard deviation. Its
        median over the weights that moved must stay below `min_update_ratio` for `num_steps` steps
        without growing by half, and no loss may have fallen by `max_fall_percent`. If noise hides a
        fall, nothing is reported. Boosted trees are judged by how little and how steadily their
        losses fall.

    Parameters:
        min_update_ratio: Movement in a step, in parts of the weight's root mean square.
        num_steps: Steps for which it must have been smaller.
        max_fall_percent: Fall of the loss from which on the run counts as learning.

    What to try:
        Ten times the learning rate. Look at the schedule.
    """

    min_update_ratio: Annotated[float, GreaterThan(0), Unit("of the rms per step")] = 1e-4
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 50
    max_fall_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 10.0

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
        CollectionConfig("losses", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure how far the weights moved, and whether the loss fell.

        Args:
            step: What was saved at the step.
            memory: That of `weight_movement` and `slow_trees`; `losses`: first and latest numbers
                of at most 32 losses; `since`: where the small movement began, and its size there.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no weight changes")
        if any(name.startswith(OF_TREES) for name, _ in step.fact(TrainingLosses).at):
            return slow_trees(step, memory, _REMEDY)
        has_fallen = self._has_fallen(step, memory)
        movement = weight_movement(step, memory)
        if isinstance(movement, NotEvaluated):
            return movement
        median = median_of_moving(movement.moved)
        is_too_low = self._is_too_low(step, median, movement.since, memory)
        if has_fallen or not is_too_low:
            return Passed()
        slowest = int(np.argmin(np.where(movement.moved > 0, movement.moved, np.inf)))
        return IssueFound(
            evidence(
                step,
                movement.rows,
                movement.row(slowest),
                measure="median_move_per_step",
                value=median,
                threshold=self.min_update_ratio,
                message=f"moved least; the median weight moves by {median:.3g} of its size in a "
                f"step, less than {self.min_update_ratio:g}, since step {memory['since'][0]}, and "
                "the loss has not fallen",
                remedy=_REMEDY,
            )
        )

    def _is_too_low(self, step: StepView, median: float, before: int, memory: Memory) -> bool:
        """Return whether weights moved too little for long enough, without a warm-up."""
        gradients = step.tensors(collections=("gradients",))
        has_gradients = not len(gradients) or (np.nan_to_num(gradients.column("l2")) > 0).any()
        if not (0 < median < self.min_update_ratio and has_gradients):
            memory.pop("since", None)
            return False
        begin, first = memory.setdefault("since", [before, median])
        if median > _WARMING_UP * first:
            memory["since"] = [before, median]
            return False
        return bool(step.mode_step - begin >= self.num_steps)

    def _has_fallen(self, step: StepView, memory: Memory) -> bool:
        """Return whether a loss has fallen since the beginning, or may have for all we know."""
        history = SeriesMemory(
            memory.get("losses", {}), num_first=_NUM_LEVEL, num_latest=_NUM_LATEST
        )
        added = history.add(step.fact(TrainingLosses).values)
        memory["losses"] = history.to_json()
        return any(self._may_have_fallen(history.of(names)) for names in added)

    def _may_have_fallen(self, series: NumberSeries) -> bool:
        start = min(float(series.first[0]), float(np.median(series.first)))
        level = float(np.median(series.latest[-_NUM_LEVEL:]))
        needed = abs(start) * self.max_fall_percent / 100
        has_learned = start - level > needed or 0 <= level < _LEARNED * series.start
        return has_learned or noise(series.latest) > _NOISY * needed
