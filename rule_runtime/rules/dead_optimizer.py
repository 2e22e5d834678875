"""DeadOptimizer: a parameter that has a gradient and yet does not change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.cancelled_gradients import cancelled_biases
from rule_runtime.facts.gradient_names import UNTOLD, parameters_of
from rule_runtime.facts.missing_reasons import why_no_gradient
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.facts.standing_still import (
    are_at_bounds,
    are_steady,
    changed_before,
    has_exploded,
    keeps_moving,
)
from rule_runtime.numerics.row_memory import RowMemory, fingerprints, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["DeadOptimizer"]

_PRINTED: Final = ("min", "max", "mean", "l1", "l2")
_ALL_AT_ONCE: Final = 5
_ACCUMULATED: Final = 250
_STEADY_AT_ONCE: Final = 2
_STEADY: Final = 100
_HALF: Final = frozenset({"float16", "bfloat16"})
_EXPLODED: Final = (
    "gradients are more than a million times what they were at first: in numbers as large a step "
    "may be lost in rounding"
)
_REMEDY: Final = (
    "Give the optimiser all parameters (build it after the model is complete), check that "
    "optimizer.step() is called, that the learning rate of the parameter's group is not 0, and "
    "that the gradient has not vanished on its way to it."
)


class DeadOptimizer(Rule):
    """Finds parameters that get a gradient and do not change.

    How it decides:
        A value has not changed if minimum, maximum, mean, l1 and l2 are exactly equal to those of
        the training step saved before. It fires for a parameter that has not changed over
        `patience` saved steps in a row, at each of which its gradient was neither zero nor without
        finite elements. If not a single parameter with a gradient changes, and none ever did, five
        times as many are needed, and 250 steps from the first to the last of them, saved or not:
        with gradients that are accumulated the optimiser steps only now and then. Twice as many,
        and 100 steps, are enough if the gradients do not grow, as their sum would: if the median
        one of the latest 3 saved steps is less than 1.5 times that of any of the first 3.

        Parameters without a gradient (frozen ones) are not judged, nor are biases whose gradient is
        less than a thousandth of their weight's, for ahead of a normalisation it cancels out but
        for rounding. A parameter that has changed before is judged only while others move: the
        median weight of those that do by at least a thousandth of what it once moved in a step.
        Where all stand still by then the learning rate was lowered to almost nothing, or the
        training goes back and forth between the same two values. Nor is it judged if its gradient
        is, by the mean of its absolute elements, less than 1/10,000 of the largest it had: the
        training has arrived, and what is left is lost in rounding. Nor if all its elements are but
        two numbers, as those of a weight that the script clips, which have come to its bounds. One
        that never changed is judged however small its gradient, and whatever its elements. Nothing
        is judged while the largest gradient, by that mean, is more than a million times that of the
        first step. Nor are parameters in half precision whose elements are positive and within a
        factor of two of each other, as the scales of a normalisation are: a step smaller than half
        of their last digit is rounded away, while among the elements of a matrix there are always
        some small enough to move. Of more than 2,048 parameters, of all workers together, as many
        are followed.

    Parameters:
        patience: Saved steps in a row without a change.

    What to try:
        Make the optimiser behind the last change of the model, with all its parameters; look at
        its parameter groups and at the loss scaler.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 5

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("biases", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare each parameter with the training step before.

        Args:
            step: What was saved at the step.
            memory: `rows`: fingerprints and streaks of at most 2,048 parameters; `still`: for how
                many saved steps none has changed; `since`: the step before the first of them; and
                what the functions of `standing_still` keep, of fixed size.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no parameter changes")
        parameters = step.tensors(collections=("weights", "biases"))
        sizes = _sizes_of_gradients(step, parameters)
        moves = (sizes > 0) & ~_is_rounded_away(parameters)
        if not moves.any():
            return NotEvaluated(_why_none(step, parameters))
        if has_exploded(memory, sizes):
            return NotEvaluated(_EXPLODED)
        prints = fingerprints([parameters.column(name) for name in _PRINTED])
        keys = row_keys(parameters.names, parameters.workers)
        rows = RowMemory(memory.get("rows", ""))
        known = rows.known(keys)
        is_known = np.array([int(key) in known for key in keys], dtype=bool)
        before = np.array([known.get(int(key), (0, 0))[0] for key in keys])
        same = is_known & (prints == before)
        past = changed_before(memory, keys, sizes, is_known & ~same)
        moves &= ~past.has_settled & ~(past.has_changed & same & are_at_bounds(parameters))
        # What layers count by themselves, as means of batches, changes without an optimiser.
        is_all = bool(moves.any() and same[moves].all())
        others_move = keeps_moving(step, memory) and not is_all
        streaks = rows.update(keys, prints, same & moves & (others_move | ~past.has_changed))
        memory["rows"] = rows.to_json()
        needed = self._needed(step, sizes, memory, is_all=is_all)
        if not known:
            return NotEvaluated("there is no earlier step to compare with")
        bad = streaks >= (needed or math.inf)
        return _found(step, parameters, streaks, bad, needed or 0) if bad.any() else Passed()

    def _needed(
        self, step: StepView, sizes: npt.NDArray[np.float64], memory: Memory, *, is_all: bool
    ) -> int | None:
        """Return for how many saved steps a parameter must have stood still; None: too early.

        Args:
            step: What was saved at the step.
            sizes: Mean absolute gradients of the parameters [R].
            memory: That of `check`.
            is_all: Whether no parameter moved since the step before.
        """
        still = memory.get("still", 0) + 1 if is_all else 0
        since = memory.get("since", step.mode_step) if still else step.mode_step
        memory.update(still=min(still, _ALL_AT_ONCE * self.patience), since=since)
        is_steady = are_steady(memory, sizes, begins=not still)
        needed = (_STEADY_AT_ONCE if is_steady else _ALL_AT_ONCE) * self.patience
        if not is_all:
            return self.patience
        steps = _STEADY if is_steady else _ACCUMULATED
        return None if still < needed or step.mode_step - since < steps else needed


def _found(
    step: StepView,
    parameters: TensorRows,
    streaks: npt.NDArray[np.int64],
    bad: npt.NDArray[np.bool_],
    needed: int,
) -> IssueFound:
    """Tell of the parameter that has stood still for longest.

    Args:
        step: What was saved at the step.
        parameters: Its weights and biases [R].
        streaks: For how many saved steps each has stood still [R].
        bad: Whether that is too long [R].
        needed: How many are too many.
    """
    at = worst(parameters, np.where(bad, streaks, np.nan), largest=True)
    share = f"{int(bad.sum())} of {len(parameters)} parameters"
    size = _norm_of_gradient(step, parameters.names[at])
    return IssueFound(
        evidence(
            step,
            parameters,
            at,
            measure="unchanged_saved_steps",
            value=float(streaks[at]),
            threshold=needed,
            message=f"has a gradient, of l2 norm {size:.3g}, and has not changed for "
            f"{streaks[at]} saved steps ({share})",
            remedy=_REMEDY,
        )
    )


def _is_rounded_away(parameters: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell of each parameter whether it may stand still because its digits are few."""
    low, high = parameters.column("min"), parameters.column("max")
    is_half = np.array([dtype in _HALF for dtype in parameters.dtypes], dtype=bool)
    return is_half & (low > 0) & (low > high / 2)


def _why_none(step: StepView, parameters: TensorRows) -> str:
    """Return why no parameter is known to have a gradient."""
    if not len(parameters):
        return "neither weights nor biases were saved"
    gradients = step.tensors(collections=("gradients",))
    unknown = why_no_gradient(gradients, ("l1", "size"))
    if unknown:
        return unknown
    if not (gradients.column("l1") > 0).any():
        return "all gradients that are known are zero"
    if not any(parameters_of(step, gradients)):
        return UNTOLD
    return "no parameter was saved together with a gradient that is more than rounding"


def _sizes_of_gradients(step: StepView, parameters: TensorRows) -> npt.NDArray[np.float64]:
    """Return each parameter's mean absolute gradient [R]; 0 if not known, or but rounding."""
    gradients = step.tensors(collections=("gradients",))
    sizes = np.nan_to_num(gradients.column("l1") / np.maximum(gradients.column("size"), 1))
    cancelled = cancelled_biases(step, gradients, sizes, least=np.finfo(float).tiny)
    owners = parameters_of(step, gradients)
    found: dict[tuple[str, str], float] = {}
    for *pair, size in zip(owners, gradients.workers, np.where(cancelled, 0, sizes), strict=True):
        place = (pair[0], pair[1])
        found[place] = max(found.get(place, 0.0), float(size))
    pairs = zip(parameters.names, parameters.workers, strict=True)
    return np.array([found.get(pair, 0.0) for pair in pairs])


def _norm_of_gradient(step: StepView, parameter: str) -> float:
    """Return the l2 norm of a parameter's gradient, the largest of all workers."""
    gradients = step.tensors(collections=("gradients",))
    own = np.array([name == parameter for name in parameters_of(step, gradients)], dtype=bool)
    return float(np.nanmax(gradients.column("l2")[own], initial=0.0))
