"""DeadOptimizer: detects parameters that have a gradient and never change."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.parameters import Gradients
from rule_runtime.facts.tensor_changes import since_previous_step
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.numerics.tensor_change import are_identical
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["DeadOptimizer"]

_ACCUMULATED: Final = 250
"""Required steps while no parameter has changed, because gradients may be accumulated."""
_NOTHING_MOVES: Final = "all_unchanged_saved_steps"
_HALF: Final = frozenset({"float16", "bfloat16"})


class DeadOptimizer(Rule):
    """Detects parameters that get a gradient and never change.

    How it decides:
        The rule compares the statistics of each parameter at saved training steps. It reports a
        parameter that never changed, after `patience` steps with a gradient other than zero. If no
        parameter changed at all, it waits for 250 steps. It ignores parameters that rounding may
        keep from changing.

    Parameters:
        patience: Saved steps in a row without a change.

    What to try:
        Give the optimizer all parameters (create it after the model is complete), check that
        optimizer.step() is called, and that the learning rate of the parameter's group is not 0.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 5

    collections = saved_every(10, "weights", "biases", "gradients")
    only_training = "in mode {} no parameter changes"
    fatal_measures = (_NOTHING_MOVES,)

    def needs(self) -> Needs:
        """Return `patience` steps after the first."""
        return Needs(saved_steps=1 + self.patience)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare each parameter with the previous training step.

        Memory: The state of `since_previous_step`; `rows`: whether each of at most 2,048 parameters
        has changed, and its streak; `first`: the first compared step; `has_moved`: whether any
        parameter has changed.
        """
        gradients = step.fact(Gradients)
        gradients.require()
        pairs = since_previous_step(step, ("weights", "biases"), memory)
        learns = _learns(gradients, pairs.rows) & ~_may_round_away(pairs.rows)
        if not learns.any():
            raise Missing("no parameter was saved with a gradient that is more than rounding")
        known = RowMemory(memory, pairs.rows.pairs)
        changed = ~are_identical(pairs.now, pairs.before)
        memory["has_moved"] = memory.get("has_moved", False) or bool((changed & learns).any())
        changed |= known.fingerprints > 0
        streaks = known.update(~changed & learns, changed)
        num_steps = step.mode_step - memory.setdefault("first", pairs.other.mode_step)
        is_dead = streaks >= self.patience
        if not is_dead.any():
            return Passed()
        if not memory["has_moved"] and num_steps < _ACCUMULATED:
            raise NotEnough(_ACCUMULATED, "step", num_steps, "gradients may be accumulated")
        at = worst(pairs.rows, np.where(is_dead, streaks, np.nan), largest=True)
        message = f"has a gradient, of mean size {gradients.of(pairs.rows)[at]:.3g}, and has not "
        message += f"changed for {streaks[at]} saved steps ({int(is_dead.sum())} of "
        message += f"{len(pairs.rows)} parameters)"
        measure = "unchanged_saved_steps" if memory["has_moved"] else _NOTHING_MOVES
        measured = (measure, float(streaks[at]), self.patience)
        return finding(self, step, (pairs.rows, at), measured, message)


def _learns(gradients: Gradients, parameters: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which parameters have a finite gradient that is more than rounding [R]."""
    sizes = gradients.of(parameters)
    owners = zip(gradients.owners, gradients.rows.workers, gradients.is_cancelled, strict=True)
    rounding = {(name, worker) for name, worker, is_cancelled in owners if is_cancelled}
    is_more = np.array([pair not in rounding for pair in parameters.pairs], dtype=bool)
    return np.asarray(is_more & np.isfinite(sizes) & (sizes > 0))


def _may_round_away(parameters: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which parameters may be unchanged because of low precision [R].

    In half precision, an update of less than half of the last digit is lost. If all elements are
    positive and within a factor of two, such as scales of a normalisation, all may stay the same.
    """
    low, high = parameters.column("min"), parameters.column("max")
    is_half = np.array([dtype in _HALF for dtype in parameters.dtypes], dtype=bool)
    return is_half & (low > 0) & (low > high / 2)
