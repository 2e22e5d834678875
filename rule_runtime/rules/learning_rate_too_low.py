"""LearningRateTooLow: detects weights that hardly move while the loss does not fall."""

from __future__ import annotations

import math
from typing import Annotated, Final

import numpy as np

from rule_runtime.detectors.curves import FEWEST, noise
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.baseline import constant_loss, targets_of
from rule_runtime.facts.parameters import Gradients
from rule_runtime.facts.saved_tensors import first_scalar
from rule_runtime.facts.training_losses import training_points
from rule_runtime.facts.weight_movement import median_of_moving, tree_rate, weight_movement
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["LearningRateTooLow"]

_EFFECTIVE_RATE: Final = "^optimizer_steps/effective_rate$"
"""How far a tree moves predictions, relative to what fits its data best: at most `eta`."""
_NUM_LEVEL: Final = 5
"""Number of losses whose median is a level."""
_NOISY: Final = 1.5
"""Noise relative to the required fall that hides whether the loss fell."""
_UNEVEN: Final = 10.0
"""Movement of the fastest weight relative to the median one. Up to 5 where only the rate is low."""
_FLOOR: Final = 0.1
"""Share of the loss of a constant predictor below which a loss need not fall any more."""
_LEAST_RATE_OF_TREES: Final = 1e-3
"""A lower rate needs thousands of trees."""
_REMEDY_OF_TREES: Final = (
    "Raise eta, or lower reg_lambda and reg_alpha: the weight decay of leaves makes steps as small."
)


class LearningRateTooLow(Rule):
    """Detects updates so small that nothing is learned.

    How it decides:
        The rule fires if all of these hold:
        * The median movement of weights in a step is below `min_update_ratio`, now and over
          `num_steps` steps, and does not grow as in a warm-up.
        * No loss has fallen by `max_fall_percent`, or may have within its noise.
        * Most gradients are not zero, and no weight moves 10 times faster than the median one.
        * The loss is above a tenth of the loss of a constant predictor.

        Boosted trees are reported if no loss has fallen after 20 rounds, and leaves have less than
        0.001 of the values that fit their rows best.

    Parameters:
        min_update_ratio: Movement in a step, relative to the weight's root mean square.
        num_steps: Steps for which it must have been smaller.
        max_fall_percent: Fall of the loss from which the run counts as learning.

    What to try:
        Raise the learning rate tenfold, unless a schedule has lowered it. Check whether gradients
        vanish on their way to the first layers.
    """

    min_update_ratio: Annotated[float, GreaterThan(0), Unit("of the rms per step")] = 1e-4
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 50
    max_fall_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 10.0

    collections = saved_every(
        10, "weights", "gradients", "losses", "hyperparameters", "optimizer_steps"
    )
    only_training = "in mode {} no weight changes"

    def needs(self) -> Needs:
        """Return `num_steps` steps."""
        return Needs(steps=self.num_steps)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure the movement of the weights, and whether the loss fell.

        Memory: The state of `weight_movement`; `losses`: numbers of at most 32 losses.
        """
        has_fallen, rate = self._has_fallen(step, memory), step.fact(_effective_tree_rate)
        if rate is not None:
            (name, value), rounds = rate, step.mode_step
            if has_fallen or not value < _LEAST_RATE_OF_TREES:
                return Passed(has_decided=True)
            if rounds < FEWEST:
                raise NotEnough(FEWEST, "round", rounds)
            is_eta = name.startswith("hyperparameters/")
            by = "" if is_eta else ", by eta, reg_lambda and reg_alpha together"
            text = f"{name}: is {value:.3g}{by}, and the loss hardly falls in {rounds} rounds"
            limit, measure, remedy = _LEAST_RATE_OF_TREES, "learning_rate", _REMEDY_OF_TREES
            return IssueFound(text, measure=measure, value=value, threshold=limit, remedy=remedy)
        movement = weight_movement(step, memory)
        if _are_mostly_zero(step):
            raise Missing("half of the gradients are zero", "see the rule VanishingGradient")
        median = median_of_moving(movement.moved)
        is_slow = median > 0 and max(median, movement.mean) < self.min_update_ratio
        is_settled = movement.is_steady and movement.num_steps >= self.num_steps
        if has_fallen or not is_slow or not is_settled:
            return Passed()
        _require_even(float(np.nanmax(movement.moved)) / median)
        slowest = np.where(movement.moved > 0, movement.moved, np.nan)
        message = f"moved least; the median weight moves by {median:.3g} of its size in a step, "
        message += f"less than {self.min_update_ratio:g}, and the loss has not fallen"
        measured = ("median_move_per_step", median, self.min_update_ratio)
        at = worst(movement.rows, slowest, largest=False)
        return finding(self, step, (movement.rows, at), measured, message)

    def _has_fallen(self, step: StepView, memory: Memory) -> bool:
        """Return whether a loss has fallen since the start, or may have within its noise."""
        history = SeriesMemory(memory, "losses", num_first=_NUM_LEVEL, num_latest=FEWEST)
        added = history.add(step.fact(training_points).values)
        return any(self._may_have_fallen(history.of(each), _baseline(step, each)) for each in added)

    def _may_have_fallen(self, series: NumberSeries, baseline: float) -> bool:
        start = float(max(series.first[0], np.median(series.first)))
        level = float(np.median(series.latest[-_NUM_LEVEL:]))
        if abs(level) <= _FLOOR * baseline:
            return True
        needed = abs(start) * self.max_fall_percent / 100
        return start - level > needed or noise(series.latest) > _NOISY * needed


def _baseline(step: StepView, names: Series) -> float:
    """Return the loss of the best constant predictor; 0 if it is unknown."""
    targets = targets_of(step, *names, math.nan)
    return 0.0 if targets is None else constant_loss(names[0], targets)


def _require_even(ratio: float) -> None:
    """Raise `Missing` if the fastest weight moves many times faster than the median one."""
    if ratio > _UNEVEN:
        reason = f"a weight moves {ratio:.3g} times faster than the median one"
        raise Missing(reason, "see the rule VanishingGradient")


def _are_mostly_zero(step: StepView) -> bool:
    """Return whether at least half of the saved gradients are zero."""
    sizes = step.fact(Gradients).sizes
    return len(sizes) > 0 and 2 * np.count_nonzero(sizes == 0) >= len(sizes)


def _effective_tree_rate(step: StepView) -> tuple[str, float] | None:
    """Return name and value of the rate at which boosted trees learn; None for other models.

    It includes the regularisation of the leaves, if the hook measured it.

    Raises:
        Missing: The rate was not saved.
    """
    rows = step.tensors(regex=(_EFFECTIVE_RATE,))
    return first_scalar(rows) if len(rows) else step.fact(tree_rate)
