"""Compares the tensors of two steps; reads values only where statistics do not decide.

Shape legend: R = rows of the first step, C = statistics.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.facts.parameters import Gradients
from rule_runtime.numerics.closeness import (
    Tolerance,
    all_close,
    are_identical,
    proven_close,
    proven_different,
)
from rule_runtime.trial.value_pairs import value_pairs

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "Likeness",
    "compare",
    "frozen_rows",
    "largest_difference",
    "matched",
    "statistics_of",
    "with_numbers",
]


class Likeness(IntEnum):
    """How a tensor compares with the one of the same name and worker at another step."""

    ABSENT = 0
    DIFFERENT = 1
    CLOSE = 2
    UNKNOWN = 3


def compare(
    step: StepView, rows: TensorRows, other: StepView, others: TensorRows, tolerance: Tolerance
) -> npt.NDArray[np.int8]:
    """Return the `Likeness` of each row [R] and the same tensor of another step.

    Values are read, a few tensors at a time, where the statistics prove neither a difference nor
    equality. Where values were not saved, tensors with equal statistics count as equal.

    Args:
        step: A step.
        rows: Rows of it [R].
        other: Another step.
        others: The rows of it to compare with.
        tolerance: How close tensors must be; relative to `other`.

    Raises:
        RecordError: If an event file is damaged, or a record longer than 2 GiB.
    """
    at, there = matched(rows, others)
    likeness = np.full(len(rows), Likeness.ABSENT, dtype=np.int8)
    ours, theirs = statistics_of(rows.select(at)), statistics_of(others.select(there))
    found = np.full(len(at), Likeness.UNKNOWN, dtype=np.int8)
    found[proven_close(ours, theirs, tolerance)] = Likeness.CLOSE
    found[proven_different(ours, theirs, tolerance)] = Likeness.DIFFERENT
    one_shapes, other_shapes = rows.shapes, others.shapes
    for position, (i, j) in enumerate(zip(at, there, strict=True)):
        one, two = one_shapes[i], other_shapes[j]
        if one is not None and two is not None and one != two:
            found[position] = Likeness.DIFFERENT
    likeness[at] = found
    open_rows = np.flatnonzero(likeness == Likeness.UNKNOWN)
    by_worker: dict[str, dict[str, int]] = defaultdict(dict)
    for row in open_rows:
        by_worker[rows.workers[row]][rows.names[row]] = int(row)
    for worker, names in by_worker.items():
        for name, value, other_value in value_pairs(step, other, names, worker):
            is_close = all_close(value, other_value, tolerance)
            likeness[names[name]] = Likeness.CLOSE if is_close else Likeness.DIFFERENT
    identical = np.zeros(len(rows), dtype=np.bool_)
    identical[at] = are_identical(ours, theirs, tolerance)
    likeness[(likeness == Likeness.UNKNOWN) & identical] = Likeness.CLOSE
    return likeness


def matched(
    rows: TensorRows, others: TensorRows
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the positions of the tensors that both have, in the one and in the other.

    Args:
        rows: Rows of a step.
        others: Rows of another step.
    """
    if rows.names == others.names and rows.workers == others.workers:
        every = np.arange(len(rows), dtype=np.intp)
        return every, every
    where = {pair: i for i, pair in enumerate(zip(others.names, others.workers, strict=True))}
    pairs = enumerate(zip(rows.names, rows.workers, strict=True))
    both = [(i, where[pair]) for i, pair in pairs if pair in where]
    positions = np.array(both, dtype=np.intp).reshape(-1, 2)
    return positions[:, 0], positions[:, 1]


def with_numbers(rows: TensorRows) -> TensorRows:
    """Return the rows that can be compared: not those without elements, nor texts.

    Args:
        rows: The rows.
    """
    size = rows.column("size")
    is_text = (size > 0) & np.isnan(rows.column("nan"))
    return rows.select((size != 0) & ~is_text)


def statistics_of(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the statistics of some rows [R, C].

    Args:
        rows: The rows.
    """
    return np.stack([rows.column(name) for name in STATISTICS_COLUMNS], axis=1)


def largest_difference(
    step: StepView, rows: TensorRows, at: int, other: StepView, others: TensorRows
) -> tuple[float, bool]:
    """Return the largest difference of two elements of a tensor, and whether it is exact.

    Where values were not saved it is a lower bound: the difference of the means or extremes. It is
    -1 where shapes or kinds differ, or nothing is known.

    Args:
        step: A step.
        rows: Rows of it [R].
        at: Which of them.
        other: Another step.
        others: Rows of it.
    """
    name, worker = rows.names[at], rows.workers[at]
    for _, ours, theirs in value_pairs(step, other, (name,), worker):
        if ours.shape != theirs.shape or not {ours.dtype.kind, theirs.dtype.kind} <= set("biufc"):
            return -1.0, True
        with np.errstate(all="ignore"):
            distance = np.abs(np.subtract(ours, theirs, dtype=np.result_type(ours, theirs, 1.0)))
        known = distance[~np.isnan(distance)]
        return (float(known.max()), True) if known.size else (-1.0, True)
    one, two = matched(rows.select([at]), others)
    first, second = rows.select([at]).select(one), others.select(two)
    with np.errstate(all="ignore"):
        bounds = [np.abs(first.column(key) - second.column(key)) for key in ("min", "max", "mean")]
    known = np.concatenate(bounds)
    known = known[np.isfinite(known)]
    return (float(known.max()), False) if known.size else (-1.0, True)


def frozen_rows(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows are parameters without a gradient, frozen or unused [R].

    Nothing is known, and no row is frozen, where the worker saved no gradient at this step, or only
    such as do not tell by their names what they are of.

    Args:
        step: The step.
        rows: Rows of it [R].
    """
    gradients = step.fact(Gradients)
    known = {
        of for owner, of in zip(gradients.owners, gradients.rows.workers, strict=True) if owner
    }
    parameters = step.tensors(collections=("weights", "biases"))
    pairs = set(zip(parameters.names, parameters.workers, strict=True))
    own = zip(rows.names, rows.workers, strict=True)
    is_parameter = np.array([pair in pairs and pair[1] in known for pair in own], dtype=np.bool_)
    return np.asarray(is_parameter & np.isnan(gradients.of(rows)))
