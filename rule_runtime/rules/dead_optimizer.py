"""DeadOptimizer: a parameter that has a gradient and yet never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.parameters import Gradients, weight_fingerprints
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["DeadOptimizer"]

_CHANGED: Final = 1
"""Fingerprint of a parameter that has changed once."""
_TIMES_ALONE: Final = 5
"""How many times the patience is needed while no parameter at all has changed."""
_ACCUMULATED: Final = 250
"""Steps that are needed then: gradients may be accumulated over many steps."""
_HALF: Final = frozenset({"float16", "bfloat16"})
_REMEDY: Final = (
    "Give the optimizer all parameters (create it after the model is complete), check that "
    "optimizer.step() is called, and that the learning rate of the parameter's group is not 0."
)


class DeadOptimizer(Rule):
    """Detects parameters that get a gradient and never change.

    How it decides:
        A parameter is unchanged if its minimum, maximum, mean, l1 and l2 equal those of the saved
        training step before. The rule reports a parameter that has been unchanged since the first
        saved step, for `patience` saved steps in a row with a gradient other than zero. While no
        parameter has changed at all, 5 times the patience and 250 steps are needed, since
        gradients may be accumulated.

        Not judged are parameters that have changed once, biases before a normalisation (their
        gradient is rounding), and in half precision tensors whose elements are so similar that
        rounding may stop them all.

    Parameters:
        patience: Saved steps in a row without a change.

    What to try:
        Create the optimizer after the last change of the model, with all its parameters; check its
        parameter groups and the loss scaler.
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
            memory: `rows`: fingerprints and streaks of at most 2,048 parameters; `since`: the first
                step with a gradient; `moves`: whether any parameter has changed.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no parameter changes")
        parameters = step.tensors(collections=("weights", "biases"))
        if not len(parameters):
            return NotEvaluated("neither weights nor biases were saved")
        gradients = step.fact(Gradients)
        gradients.require()
        learns = _learns(gradients, parameters) & ~_may_round_away(parameters)
        if not learns.any():
            return NotEvaluated("no parameter was saved with a gradient that is more than rounding")
        keys = row_keys(parameters.names, parameters.workers)
        rows = RowMemory(memory.get("rows", ""))
        known = rows.known(keys)
        before = np.array([known.get(key, (-1, 0))[0] for key in keys.tolist()])
        prints = weight_fingerprints(parameters)
        has_changed = (before != prints) & (before >= 0)
        memory["moves"] = memory.get("moves", False) or bool((has_changed & learns).any())
        streaks = rows.update(
            keys, np.where(has_changed, np.uint32(_CHANGED), prints), (before == prints) & learns
        )
        memory["rows"] = rows.to_json()
        since = memory.setdefault("since", step.mode_step)
        if not known:
            return NotEvaluated("there is no earlier step to compare with")
        needed = self.patience * (1 if memory["moves"] else _TIMES_ALONE)
        is_early = not memory["moves"] and step.mode_step - since < _ACCUMULATED
        bad = (streaks >= needed) & (not is_early)
        return _found(step, parameters, streaks, bad, needed) if bad.any() else Passed()


def _found(
    step: StepView,
    parameters: TensorRows,
    streaks: npt.NDArray[np.int64],
    bad: npt.NDArray[np.bool_],
    needed: int,
) -> IssueFound:
    """Return the finding of the parameter that has been unchanged for longest."""
    at = worst(parameters, np.where(bad, streaks, np.nan), largest=True)
    size = step.fact(Gradients).of(parameters)[at]
    share = f"{int(bad.sum())} of {len(parameters)} parameters"
    return IssueFound(
        evidence(
            step,
            parameters,
            at,
            measure="unchanged_saved_steps",
            value=float(streaks[at]),
            threshold=needed,
            message=f"has a gradient, of mean size {size:.3g}, and has not changed for "
            f"{streaks[at]} saved steps ({share})",
            remedy=_REMEDY,
        )
    )


def _learns(gradients: Gradients, parameters: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which parameters have a gradient that is finite and more than rounding [R]."""
    sizes = gradients.of(parameters)
    owners = zip(gradients.owners, gradients.rows.workers, gradients.is_cancelled, strict=True)
    rounding = {(name, worker) for name, worker, is_cancelled in owners if is_cancelled}
    pairs = zip(parameters.names, parameters.workers, strict=True)
    is_more = np.array([pair not in rounding for pair in pairs], dtype=bool)
    found: npt.NDArray[np.bool_] = is_more & np.isfinite(sizes) & (sizes > 0)
    return found


def _may_round_away(parameters: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which parameters may be unchanged because their digits are few [R].

    In half precision a step of less than half of the last digit is lost. Elements that are positive
    and within a factor of two, such as the scales of a normalisation, may then all stand still.
    """
    low, high = parameters.column("min"), parameters.column("max")
    is_half = np.array([dtype in _HALF for dtype in parameters.dtypes], dtype=bool)
    return is_half & (low > 0) & (low > high / 2)
