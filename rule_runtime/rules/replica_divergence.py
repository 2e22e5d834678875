"""ReplicaDivergence: detects parameters that differ between ranks that train the same model."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Final

import numpy as np

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.missing import missing_statistics
from rule_runtime.facts.selection import finding, is_training, saved_every, worst
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ReplicaDivergence"]

_COLUMNS: Final = ("min", "max", "mean", "l1", "l2")
_ALONE: Final = (
    "no parameter was saved by two ranks: one rank wrote, or the ranks divide the model among them"
)
_UNLIKE: Final = "no parameter was saved with the same size by two workers"


class ReplicaDivergence(Rule):
    """Detects replicas of a model that are no longer equal.

    How it decides:
        The rule compares the statistics of each parameter that several ranks saved. It reports a
        relative difference above `rtol` at `patience` saved steps in a row, if all parameters were
        equal before.

    Parameters:
        rtol: Relative difference up to which statistics count as equal.
        patience: Saved steps in a row.

    What to try:
        Look for code that runs on one rank only (a checkpoint that is loaded, a weight that is
        set), for parameters that were registered after DistributedDataParallel, for no_sync()
        without an end, and for faulty memory. Continue from the last checkpoint on which all ranks
        agree.
    """

    rtol: Annotated[float, AtLeast(0), Unit("relative difference")] = 1e-4
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = saved_every(10, "weights", "biases")

    def needs(self) -> Needs:
        """Return `patience` steps after one with equal replicas."""
        return Needs(saved_steps=1 + self.patience)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the workers' parameters.

        Memory: `agreed`: whether all were equal once; `streak`: findings in a row.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} no parameter changes")
        rows = step.tensors(collections=("weights", "biases"))
        if not len(rows):
            raise Missing("neither weights nor biases were saved")
        difference = _differences(step, rows)
        if np.isnan(difference).all():
            is_alone = len(set(rows.workers)) == 1
            unknown = missing_statistics(rows, ("size", *_COLUMNS), "parameter")
            raise Missing(_ALONE) if is_alone else unknown or Missing(_UNLIKE)
        differs = difference > self.rtol
        if differs.any() and not memory.get("agreed"):
            raise Missing("the workers' parameters differ from the start")
        memory["agreed"] = True
        if streak(memory, is_bad=bool(differs.any())) < self.patience:
            return Passed()
        at = worst(rows, difference, largest=True)
        num_parameters = len({rows.names[row] for row in np.flatnonzero(differs)})
        message = (
            f"differs between workers by {difference[at]:.3g} of its size, as "
            f"{num_parameters} of {len(set(rows.names))} parameters; they were equal before"
        )
        measured = ("relative_difference", float(difference[at]), self.rtol)
        return finding(self, step, (rows, at), measured, message)


def _differences(step: StepView, rows: TensorRows) -> np.ndarray:
    """Return the difference between workers of each row's tensor [R]; NaN if unknown."""
    # Pipeline stages may have different parameters with the same name.
    stages = {worker: step.stage(worker) for worker in set(rows.workers)}
    groups = defaultdict[tuple[object, str], list[int]](list)
    for at, (name, worker) in enumerate(rows.pairs):
        groups[stages[worker], name].append(at)
    size, table = rows.column("size"), np.stack([rows.column(name) for name in _COLUMNS])
    found = np.full(len(rows), np.nan)
    for own in groups.values():
        if len(own) > 1 and len(set(size[own].tolist())) == 1:
            values = table[:, own]
            largest = np.abs(values).max(axis=1)
            with np.errstate(invalid="ignore"):
                relative = np.ptp(values, axis=1) / np.where(largest > 0, largest, 1.0)
            found[own] = np.fmax.reduce(relative)
    return found
