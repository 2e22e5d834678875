"""LearningRateTooHigh: weights that jump instead of moving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.selection import evidence, finite_means, is_training, worst
from rule_runtime.facts.weight_movement import median_of_moving, weight_movement

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LearningRateTooHigh"]

_RATE_OF_TREES: Final = "^hyperparameters/(eta|learning_rate)$"
_IS_OF_TREES: Final = "^hyperparameters/(eta|max_depth|objective)$"

_MAX_RATE_OF_TREES: Final = 1.0
"""Rate at which each tree goes to the minimum of the loss, by its quadratic approximation."""

_FIRST_STEPS: Final = 10
"""Times the limit until the second saved step: optimisers that divide by a running mean of
gradients begin with steps up to ten times too long."""

_GOES_ON: Final = 0.2
"""Share of the limit that counts after first steps above it: those of an optimiser end soon."""

_GROWTH: Final = 2.0
"""Weights that begin at zero change with momentum by up to 2 / t of their norm in step t."""

_SINGLE_STEPS: Final = 2
"""Changes in a row that count where every step is saved: one step of L-BFGS is many iterations."""

_REMEDY: Final = "Lower the learning rate tenfold, warm it up, or clip gradients."


class LearningRateTooHigh(Rule):
    """Detects updates that change most weights by a large part of themselves in every step.

    How it decides:
        Changes of a weight's norm, extremes, mean and standard deviation between saved steps bound
        its update ratio from below. The median bound of the weights that changed must exceed
        `max_update_ratio` at `patience` saved steps in a row. The change since step 0 must be ten
        times as large, or be followed by one of a fifth. At step t up to 2 / t is allowed. Boosted
        trees are judged by `eta`, which must not exceed 1.

    Parameters:
        max_update_ratio: Change in a step, in parts of the weight's norm.
        patience: Saved steps in a row.

    What to try:
        A tenth of the learning rate, a warm-up, or gradient clipping.
    """

    max_update_ratio: Annotated[float, GreaterThan(0), Unit("of the weight's norm per step")] = 0.25
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure how far the weights moved.

        Args:
            step: What was saved at the step.
            memory: That of `weight_movement`; `streak`: findings in a row; `jumped`: whether the
                first change was above the limit.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no weight changes")
        if len(step.tensors(regex=(_IS_OF_TREES,))):
            return _of_trees(step)
        movement = weight_movement(step, memory)
        if isinstance(movement, NotEvaluated):
            return movement
        ratio = median_of_moving(movement.least_ratio)
        since = movement.since
        limit = self._limit(since, ratio, memory)
        is_single = step.mode_step - since == 1
        needed = max(self.patience, _SINGLE_STEPS) if is_single else self.patience
        if streak(memory, is_bad=ratio > limit) < needed:
            return Passed()
        return IssueFound(
            evidence(
                step,
                movement.rows,
                movement.row(int(np.argmax(movement.least_ratio))),
                measure="least_update_ratio",
                value=ratio,
                threshold=limit,
                message=f"moved fastest; the median weight changes by {ratio:.3g} of its norm or "
                f"more in a step, more than {limit:.3g}",
                remedy=_REMEDY,
            )
        )

    def _limit(self, since: int, ratio: float, memory: Memory) -> float:
        """Return the largest change in a step that is no fault, for changes since a step."""
        if not since:
            memory["jumped"] = ratio > self.max_update_ratio
            return _FIRST_STEPS * self.max_update_ratio
        if memory.pop("jumped", False):
            return _GOES_ON * self.max_update_ratio
        return max(self.max_update_ratio, _GROWTH / since)


def _of_trees(step: StepView) -> Outcome:
    """Judge the learning rate of boosted trees, where it was saved."""
    rows = step.tensors(regex=(_RATE_OF_TREES,))
    rates = finite_means(rows)
    if not np.isfinite(rates).any():
        return NotEvaluated("no learning rate of the boosted trees was saved")
    at = worst(rows, rates, largest=True)
    if not rates[at] > _MAX_RATE_OF_TREES:
        return Passed()
    return IssueFound(
        evidence(
            step,
            rows,
            at,
            measure="learning_rate",
            value=float(rates[at]),
            threshold=_MAX_RATE_OF_TREES,
            message=f"is {rates[at]:g}: each tree goes farther than to the minimum of the loss",
            remedy="Choose a rate between 0.01 and 0.3.",
        )
    )
