"""LearningRateTooHigh: detects large relative updates of weights."""

from __future__ import annotations

import math
from typing import Annotated, Final

from rule_runtime.detectors.curves import first_jump
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.curve_rule import CurveRule
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.training_losses import training_points
from rule_runtime.facts.weight_movement import median_of_moving, tree_rate, weight_movement
from rule_runtime.numerics.series_memory import NumberSeries, SeriesMemory
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["LearningRateTooHigh"]

_FIRST_RATIO: Final = 2.5
"""Maximum ratio in the first step, and t times smaller in step t. Weights may start at zero, and
optimizers that divide by a running mean of gradients start with steps up to ten times too long.
"""
_FEWEST_STEPS: Final = 2
"""Number of steps that must be too long: one step of L-BFGS has many iterations."""
_NUM_LATEST: Final = 15
"""Latest losses that must all be no better than before a jump: healthy jumps are over after 10."""
_BETTER: Final = 0.8
"""Share of the lowest loss before a jump below which the loss has recovered."""


class LearningRateTooHigh(Rule):
    """Detects updates that change most weights by a large fraction in every step.

    How it decides:
        The rule fires if the median movement of weights in a step exceeds `max_update_ratio` at
        `patience` saved steps in a row. The limit is higher in the first steps. There, a single
        step that is too long fires if the loss jumps to three times the loss before training and
        does not recover. Boosted trees are reported if `eta` exceeds 1.

    Parameters:
        max_update_ratio: Change in a step, relative to the weight's norm.
        patience: Saved steps in a row.

    What to try:
        Lower the learning rate tenfold, warm it up, or clip gradients.
    """

    max_update_ratio: Annotated[float, GreaterThan(0), Unit("of the weight's norm per step")] = 0.25
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = saved_every(10, "weights", "losses", "hyperparameters")
    only_training = "in mode {} no weight changes"

    def needs(self) -> Needs:
        """Return the steps with a limit of their own, and `patience` after them."""
        steps = round(_FIRST_RATIO / self.max_update_ratio)
        return Needs(steps=steps, saved_steps=1 + self.patience)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure the movement of the weights.

        Memory: The state of `weight_movement`; `streak`: findings in a row; `longest`: ratio and
        limit of the longest of the first steps; `losses`: numbers of at most 32 losses; `rows` of a
        batch.
        """
        rate = step.fact(tree_rate)
        if rate is not None:
            name, value = rate
            if not value > 1:  # with a rate of 1, trees minimise the loss's quadratic approximation
                return Passed(has_decided=True)
            text = f"{name}: is {value:g}, so each tree overshoots the minimum of the loss"
            measure, remedy = "learning_rate", "Choose a rate between 0.01 and 0.3."
            return IssueFound(text, measure=measure, value=value, threshold=1, remedy=remedy)
        is_upset = self._is_upset(step, memory)
        movement = weight_movement(step, memory)
        ratio, since = median_of_moving(movement.least_ratio), movement.since
        limit = max(self.max_update_ratio, _FIRST_RATIO / max(since, 1))
        # Two of the first steps, which have their own limit, must be too long.
        num_steps = max(self.patience, _FEWEST_STEPS - (step.mode_step - since) + 1)
        is_long = streak(memory, is_bad=ratio > limit) >= num_steps
        if ratio > limit > self.max_update_ratio:
            memory["longest"] = max([ratio, limit], memory.get("longest", [0.0, limit]))
        if not is_long and not (is_upset and "longest" in memory):
            return Passed()
        ratio, limit = (ratio, limit) if is_long else memory["longest"]
        message = f"moved fastest; the median weight changes by {ratio:.3g} of its norm or more in "
        message += f"a step, more than {limit:.3g}"
        message += "" if is_long else " at the beginning, and the loss is no better than before"
        measured = ("least_update_ratio", ratio, limit)
        at = worst(movement.rows, movement.least_ratio, largest=True)
        return finding(self, step, (movement.rows, at), measured, message)

    def _is_upset(self, step: StepView, memory: Memory) -> bool:
        """Return whether all losses of the step have jumped at the beginning and stay high."""
        num_first = CurveRule.num_first
        history = SeriesMemory(memory, "losses", num_first=num_first, num_latest=_NUM_LATEST)
        try:
            points = step.fact(training_points)
        except Missing:
            return False
        added = history.add(points.values)
        rows = memory["rows"] = points.batch or memory.get("rows")
        return all(_stays_high(history.of(names), rows or math.nan) for names in added)


def _stays_high(series: NumberSeries, rows: float) -> bool:
    """Return whether a loss jumped at the beginning and is no better than before the jump."""
    num = first_jump(series.first, rows)
    is_known = series.count >= CurveRule.num_first + _NUM_LATEST
    return bool(num and is_known and series.latest.min() > _BETTER * series.first[:num].min())
