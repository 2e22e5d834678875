"""Targets of several numbers that are the same in every row: one answer for all."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.evaluation.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["constant_rows"]

_TABLE: Final = 2
_FEWEST: Final = 32
_STEPS: Final = 2


def constant_rows(step: StepView, targets: TensorRows, memory: Memory) -> dict[int, int]:
    """Return which targets have been one and the same row, and in how many rows.

    Values are read until two rows differ, of targets [B, K] of 32 rows or more that are not all one
    number; it takes two saved steps.

    Args:
        step: A step of training.
        targets: Its targets [R].
        memory: `alike`, of at most 32 tensors: a number that stands for the row, saved steps and
            rows so far; None once two rows differed.
    """
    known: dict[str, list[int] | None] = memory.setdefault("alike", {})
    low, high, found = targets.column("min"), targets.column("max"), {}
    are_saved = targets.have_values
    for at, shape in enumerate(targets.shapes):
        name, worker = targets.names[at], targets.workers[at]
        key = f"{worker}/{name}"
        is_table = shape is not None and len(shape) >= _TABLE and shape[0] >= _FEWEST
        is_judged = is_table and are_saved[at] and low[at] < high[at]
        if not is_judged or (key in known and known[key] is None):
            continue
        if key not in known and len(known) >= MAX_SERIES:
            continue
        values = step.values((name,), worker).get(name)
        known[key] = None if values is None else _counted(values, known.get(key))
        now = known[key]
        if now is not None and now[1] >= _STEPS:
            found[at] = now[2]
    return found


def _counted(values: Any, before: list[int] | None) -> list[int] | None:
    """Return what is known of rows [B, ...] with these, None if they differ."""
    if not (values == values[:1]).all():
        return None
    mark = zlib.crc32(np.ascontiguousarray(values[0]).tobytes())
    if before is None:
        return [mark, 1, len(values)]
    return [mark, before[1] + 1, before[2] + len(values)] if before[0] == mark else None
