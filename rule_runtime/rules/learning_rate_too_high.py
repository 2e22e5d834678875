"""LearningRateTooHigh: weights that jump about instead of moving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.missing_reasons import why_no_drift
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LearningRateTooHigh"]

_ETA: Final = "^hyperparameters/(eta|learning_rate)$"
_OF_TREES: Final = "^hyperparameters/(eta|max_depth|objective)$"
_MAX_ETA: Final = 1.0
_MANY_TIMES: Final = 10
_SINGLE_STEPS: Final = 2
_GOES_ON: Final = 0.4
_MOMENTUM: Final = 2.0
_REMEDY: Final = "Lower the learning rate tenfold, warm it up, or clip gradients."


class LearningRateTooHigh(Rule):
    """Finds updates that change most weights in training by a large part of themselves.

    How it decides:
        The change of a weight between two saved training steps is not known from statistics, but a
        bound is: it is at least the change of its l2 norm, of its minimum and maximum, and of its
        mean and standard deviation times the root of its size. Divided by the weight's norm and by
        the number of steps it is a lower bound of the update ratio. It fires if the median of this
        bound over the weights that changed (not the frozen ones) is larger than `max_update_ratio`
        at `patience` saved steps in a row. From step 0 on RMSprop, and others that divide by what
        gradients were, make steps that are up to ten times too long, and weights jump in trainings
        that learn well. So the change to the saved step behind step 0 must be ten times
        `max_update_ratio`; if it is less, but above `max_update_ratio`, the next change counts,
        too, if it goes on: if it is more than 0.4 divided by the number of the step. Where every
        step is saved, a single one counts if it is ten times `max_update_ratio`; else two in a row
        must be above it, as one step of LBFGS is many iterations. The true ratio may be larger, so
        it can miss, but what it finds is there. Weights whose norm is zero, and those with NaN or
        infinite elements, are left out, and so are those that are zero at first, as LoRA's B: they
        grow by large parts of themselves. Where no others change, as in a linear model, a change is
        too large only if it is more than 2 divided by the number of the step before, too. Of more
        than 64 weights, of all workers together, 64 evenly spread by name are followed. Boosted
        trees have no weights: there it fires if the hyperparameter `eta` (or `learning_rate`,
        beside `max_depth` or `objective`) was saved and is larger than 1.

    Parameters:
        max_update_ratio: Change in a step, in parts of the weight's norm.
        patience: Saved steps in a row.

    What to try:
        A tenth of the learning rate; a warm-up; gradient clipping.
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
            memory: `drift`: statistics of at most 64 weights; `streak`: findings in a row;
                `jumped`: whether the weights jumped at the very beginning; `zeros`: at most 2,048
                weights that were zero at the first saved step; `grows`: whether only they change.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no weight changes")
        rows = step.tensors(collections=("weights",))
        if not len(rows):
            return _of_trees(step)
        drift = WeightDrift(memory.get("drift", {}))
        columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
        pairs = list(zip(rows.names, rows.workers, strict=True))
        _note_zeros(rows, memory)
        since = drift.step
        bound, _, names = drift.advance(step.mode_step, pairs, columns)
        memory["drift"] = drift.to_json()
        if not names:
            return NotEvaluated(why_no_drift(rows, since, step.mode_step))
        from_zero = _from_zero(names, memory)
        memory["grows"] = not (bound[~from_zero] > 0).any()
        bound = bound if memory["grows"] else np.where(from_zero, 0.0, bound)
        middle = float(np.median(bound[bound > 0])) if bound.any() else 0.0
        steps = since or 0, step.mode_step
        limit = self._limit(middle, steps, memory)
        streak = memory.get("streak", 0) + 1 if middle > limit else 0
        memory["streak"] = min(streak, self.patience + 1)
        if streak < self._patience(middle, steps):
            return Passed()
        fastest = names[min(range(len(names)), key=lambda at: (-bound[at], names[at]))]
        message = (
            f"moved fastest; the median weight changes by {middle:.3g} of its norm or more in a "
            f"step, more than {limit:.3g}"
        )
        return IssueFound(
            evidence(
                step,
                rows,
                pairs.index(fastest),
                measure="least_update_ratio",
                value=middle,
                threshold=limit,
                message=message,
                remedy=_REMEDY,
            )
        )

    def _patience(self, middle: float, steps: tuple[int, int]) -> int:
        """Return how many changes in a row must be too large; see `_limit`."""
        since, now = steps
        is_little = now - since == 1 and middle <= self._jump
        return max(self.patience, _SINGLE_STEPS) if is_little else self.patience

    @property
    def _jump(self) -> float:
        """The change in a step that is too large even where one step by itself says little."""
        return _MANY_TIMES * self.max_update_ratio

    def _limit(self, middle: float, steps: tuple[int, int], memory: Memory) -> float:
        """Return the largest change in a step that is no issue between two steps.

        Args:
            middle: Change in a step, in parts of the weight's norm.
            steps: The two steps.
            memory: See `check`.
        """
        since, now = steps
        if since == 0:
            memory["jumped"] = self.max_update_ratio < middle <= self._jump
            return self._jump
        # Weights that grow by as much in each step change by 1 / t of their norm in step t; those
        # that grow from zero, and faster and faster by momentum, by up to 2 / t.
        if memory.get("grows"):
            return max(self.max_update_ratio, _MOMENTUM / since)
        goes_on = 2 * _GOES_ON / (since + now)
        is_judged = memory.pop("jumped", False)
        return min(self.max_update_ratio, goes_on) if is_judged else self.max_update_ratio


def _note_zeros(rows: TensorRows, memory: Memory) -> None:
    """Remember, at the first saved step, which weights are zero."""
    if "zeros" not in memory:
        keys = row_keys(rows.names, rows.workers)[rows.column("l2") == 0]
        zeros = RowMemory("")
        zeros.update(keys, np.zeros_like(keys), np.ones(len(keys), dtype=bool))
        memory["zeros"] = zeros.to_json()


def _from_zero(names: list[tuple[str, str]], memory: Memory) -> npt.NDArray[np.bool_]:
    """Tell which weights were zero at the first saved step."""
    keys = row_keys([name for name, _ in names], [worker for _, worker in names])
    known = RowMemory(memory["zeros"]).known(keys)
    return np.array([key in known for key in keys.tolist()], dtype=bool)


def _of_trees(step: StepView) -> Outcome:
    """Judge the learning rate of boosted trees, where it was saved."""
    rows = step.tensors(regex=(_ETA,))
    rates = rows.column("mean")
    if np.isnan(rates).all() or not len(step.tensors(regex=(_OF_TREES,))):
        return NotEvaluated("no tensor of the collection weights was saved")
    at = worst(rows, rates, largest=True)
    if not rates[at] > _MAX_ETA:
        return Passed()
    return IssueFound(
        evidence(
            step,
            rows,
            at,
            measure="learning_rate",
            value=float(rates[at]),
            threshold=_MAX_ETA,
            message=f"is {rates[at]:g}, and each tree goes farther than to the loss's minimum",
            remedy="Choose a rate between 0.01 and 0.3.",
        )
    )
