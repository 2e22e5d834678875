"""ReplicaDivergence: detects parameters that differ between ranks that train the same model."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from typing import Annotated, Final

import numpy as np

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, Outcome, Passed, counted
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.missing import missing_statistics, required_tensors
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["ReplicaDivergence"]

_COLUMNS: Final = ("min", "max", "mean", "l1", "l2")
_ALONE: Final = (
    "no parameter was saved by two ranks: a run with several needs include_workers=all; ranks that "
    "divide the model are not evaluated"
)
_UNLIKE: Final = "no parameter was saved with the same size by two ranks"


class ReplicaDivergence(Rule):
    """Detects replicas of a model that are no longer equal.

    How it decides:
        The rule compares the statistics of each parameter that several ranks saved. It reports a
        relative difference above `rtol` at `patience` saved steps in a row, of a parameter that
        was equal before. Parameters that differ from the start, such as experts, do not count.

    Parameters:
        rtol: Relative difference up to which statistics count as equal.
        patience: Saved steps in a row.

    What to try:
        Look for code that runs on one rank only, for parameters that were registered after
        DistributedDataParallel, for no_sync() without an end, and for faulty memory. Continue from
        the last checkpoint on which all ranks agree.
    """

    rtol: Annotated[float, AtLeast(0), Unit("relative difference")] = 1e-4
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = saved_every(10, "weights", "biases")
    only_training = "in mode {} no parameter changes"

    def needs(self) -> Needs:
        """Return `patience` steps after one with equal replicas."""
        return Needs(saved_steps=1 + self.patience)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the workers' parameters.

        Memory: `agreed`: whether all were equal once; `rows`: otherwise, which of at most 2,048
        parameters were; `streak`: findings in a row.
        """
        rows = required_tensors(step, "weights", "biases")
        difference = _differences(step, rows)
        if np.isnan(difference).all():
            is_alone = len(set(rows.workers)) == 1
            unknown = missing_statistics(rows, ("size", *_COLUMNS), "parameter")
            raise Missing(_ALONE) if is_alone else unknown or Missing(_UNLIKE)
        agreed = self._have_agreed(rows, difference, memory)
        if not agreed.any():
            raise Missing("no parameter was equal on the ranks at the start")
        differs = agreed & (difference > self.rtol)
        if streak(memory, is_bad=bool(differs.any())) < self.patience:
            return Passed()
        at = worst(rows, np.where(differs, difference, np.nan), largest=True)
        is_excluded = ~agreed & (difference > self.rtol)
        num_bad, num_excluded = (len({*compress(rows.names, of)}) for of in (differs, is_excluded))
        excluded = f"; {counted(num_excluded, 'other')} differed from the start"
        message = f"differs between workers by {difference[at]:.3g} of its size, as {num_bad} of "
        message += f"{len(set(rows.names))} parameters; they were equal before"
        message += excluded if num_excluded else ""
        measured = ("relative_difference", float(difference[at]), self.rtol)
        return finding(self, step, (rows, at), measured, message)

    def _have_agreed(self, rows: TensorRows, difference: np.ndarray, memory: Memory) -> np.ndarray:
        """Return which parameters were equal on all workers, now or before [R].

        If some differ from the start, constants such as biases of 0 may be equal by their
        initialisation alone. They do not count until they vary.
        """
        if memory.get("agreed") or not (difference > self.rtol).any():
            memory["agreed"] = True
            return np.ones(len(rows), np.bool_)
        known, is_varied = RowMemory(memory, rows.pairs), rows.column("min") < rows.column("max")
        agreed = (known.fingerprints > 0) | ((difference <= self.rtol) & is_varied)
        known.update(np.zeros(len(rows), np.bool_), agreed)
        return agreed


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
