"""Targets of several numbers that are the same in every row: one answer for all."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.facts.loss_calls import AllCalls
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ConstantRow", "constant_rows"]

_TABLE: Final = 2
_FEWEST: Final = 32
_STEPS: Final = 2
_OF_CLASSES: Final = 2


class ConstantRow(NamedTuple):
    """A row that all rows so far are equal to.

    Attributes:
        num_rows: How many there were.
        may_be_class: Whether it has as few different numbers as one class among others, or labels
            of yes and no, have, smoothed or not.
    """

    num_rows: int
    may_be_class: bool


def constant_rows(
    step: StepView, targets: TensorRows, calls: AllCalls, memory: Memory
) -> dict[int, ConstantRow]:
    """Return which targets have been one and the same row, and in how many rows.

    Values are read until two rows differ, of targets [B, K] of 32 rows or more that are not all one
    number; it takes two saved steps.

    Args:
        step: A step of training.
        targets: Its targets [R].
        calls: The same, of all calls of their losses.
        memory: `alike`, of at most 32 tensors: a number that stands for the row, saved steps and
            rows so far; None once two rows differed.
    """
    known: dict[str, list[int] | None] = memory.setdefault("alike", {})
    found = {}
    are_saved = targets.have_values
    for at, shape in enumerate(targets.shapes):
        name, worker = targets.names[at], targets.workers[at]
        key = f"{worker}/{name}"
        is_table = shape is not None and len(shape) >= _TABLE and shape[0] >= _FEWEST
        is_judged = is_table and are_saved[at] and calls.low[at] < calls.high[at]
        if not is_judged or (key in known and known[key] is None):
            continue
        if key not in known and len(known) >= MAX_SERIES:
            continue
        values = step.values(calls.names[at], worker)
        known[key] = now = _counted(name, values, known.get(key))
        if now is not None and now[1] >= _STEPS:
            is_class = len(np.unique(values[name][0])) <= _OF_CLASSES
            found[at] = ConstantRow(now[2], may_be_class=is_class)
    return found


def _counted(name: str, values: Mapping[str, Any], before: list[int] | None) -> list[int] | None:
    """Return what is known of rows [B, ...] with these, None if they differ."""
    if name not in values:
        return None
    first, rows = values[name][0], [np.atleast_1d(value) for value in values.values()]
    if not all(each.shape[1:] == first.shape and (each == first).all() for each in rows):
        return None
    mark, num_rows = zlib.crc32(np.ascontiguousarray(first).tobytes()), sum(map(len, rows))
    if before is None:
        return [mark, 1, num_rows]
    return [mark, before[1] + 1, before[2] + num_rows] if before[0] == mark else None
