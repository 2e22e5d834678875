"""Compares the tensors of two steps; reads values only if statistics do not decide.

Shape legend: R = pairs of tensors, C = statistics, in the order of `STATISTICS_COLUMNS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.engine.outcome import Missing, NotEnough
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.missing import required_tensors
from rule_runtime.facts.parameters import Gradients
from rule_runtime.numerics.tensor_change import (
    Tolerance,
    all_close,
    are_identical,
    proven_different,
)
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.value_pairs import value_pairs

__all__ = ["TensorPairs", "compare", "frozen_rows", "since_previous_step", "with_numbers"]

_Mask = npt.NDArray[np.bool_]


class TensorPairs:
    """Tensors that two steps have in common, by name and worker.

    Attributes:
        at: Their positions in `rows` [R].
        rows: Their rows at the step [R].
        now: Their statistics at the step [R, C].
        before: Their statistics at the other step [R, C].
        has_other_shape: Whether they are known to have another shape at the other step [R].
    """

    def __init__(
        self, step: StepView, rows: TensorRows, other: StepView, others: TensorRows
    ) -> None:
        where = {pair: at for at, pair in enumerate(others.pairs)}
        both = [(at, where[pair]) for at, pair in enumerate(rows.pairs) if pair in where]
        self.step, self.other = step, other
        self.at = np.array([at for at, _ in both], dtype=np.intp)
        self.rows = rows.select(self.at)
        others = others.select(np.array([at for _, at in both], dtype=np.intp))
        self.now, self.before = _statistics_of(self.rows), _statistics_of(others)
        shapes = zip(self.rows.shapes, others.shapes, strict=True)
        differs = [None not in (one, two) and one != two for one, two in shapes]
        self.has_other_shape = np.array(differs, dtype=np.bool_)

    def values(self, chosen: _Mask) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yield position and both values of chosen pairs [R] that have values, a few at a time.

        Raises:
            RecordError: If an event file is damaged, or a record longer than 2 GiB.
        """
        by_worker: dict[str, dict[str, int]] = defaultdict(dict)
        for at in np.flatnonzero(chosen).tolist():
            by_worker[self.rows.workers[at]][self.rows.names[at]] = at
        for worker, names in by_worker.items():
            for name, value, other in value_pairs(self.step, self.other, names, worker):
                yield names[name], value, other


def _statistics_of(rows: TensorRows) -> npt.NDArray[np.float64]:
    return np.stack([rows.column(name) for name in STATISTICS_COLUMNS], axis=1)


def since_previous_step(step: StepView, collections: Sequence[str], memory: Memory) -> TensorPairs:
    """Return the tensors of collections, paired with the previous step that had any.

    Memory: `previous`, the global number of that step.

    Raises:
        Missing: There is no such tensor, or no previous step.
    """
    rows = required_tensors(step, *collections)
    previous, memory["previous"] = memory.get("previous", step.step), step.step
    if previous == step.step:
        raise NotEnough(2, "saved step", 1)
    earlier = step.earlier(previous) if previous < step.step else None
    if earlier is None:
        raise Missing(f"the saved step before, {previous}, cannot be read: keep its index files")
    return TensorPairs(step, rows, earlier, earlier.tensors(collections=collections))


def compare(pairs: TensorPairs, tolerance: Tolerance) -> tuple[_Mask, _Mask]:
    """Return which pairs of tensors are close, and which are different [R]; others are unknown.

    Values are read if statistics do not prove a difference. Tensors without saved values are close
    if their statistics are equal.

    Raises:
        RecordError: If an event file is damaged, or a record longer than 2 GiB.
    """
    is_close = are_identical(pairs.now, pairs.before) & ~pairs.has_other_shape
    is_different = proven_different(pairs.now, pairs.before, tolerance) | pairs.has_other_shape
    for at, value, other in pairs.values(~is_different):
        is_close[at] = all_close(value, other, tolerance)
        is_different[at] = not is_close[at]
    return is_close & ~is_different, is_different


def with_numbers(rows: TensorRows) -> TensorRows:
    """Return the rows that can be compared: without empty tensors and strings."""
    size = rows.column("size")
    is_text = (size > 0) & np.isnan(rows.column("nan"))
    return rows.select((size != 0) & ~is_text)


def frozen_rows(step: StepView, rows: TensorRows) -> _Mask:
    """Return which rows are parameters without a gradient (frozen or unused) [R].

    No row counts as frozen if the worker saved no gradient of a known parameter.
    """
    gradients = step.fact(Gradients)
    owners = zip(gradients.owners, gradients.rows.workers, strict=True)
    known = {worker for owner, worker in owners if owner}
    parameters = step.tensors(collections=("weights", "biases"))
    known_parameters = {pair for pair in parameters.pairs if pair[1] in known}
    is_parameter = np.array([pair in known_parameters for pair in rows.pairs], dtype=np.bool_)
    return np.asarray(is_parameter & np.isnan(gradients.of(rows)))
