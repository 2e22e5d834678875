"""Columns of inputs that have made up a number in all batches so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.told_so_far import OF_CLASSES
from rule_runtime.numerics.column_blocks import Flags
from rule_runtime.numerics.telling_sums import telling_sum

__all__ = ["KeptSum", "summed_by", "summed_so_far"]


class KeptSum(TypedDict):
    """What is kept of the columns of an input that make up a number.

    Attributes:
        columns: The columns; none if other ones did, or none, in any batch.
        is_exact: Whether they were its parts in each.
        rows: How many different rows showed it.
        seen: Numbers that stand for these rows.
    """

    columns: list[int]
    is_exact: bool
    rows: int
    seen: list[int]


def summed_so_far(
    kept: KeptSum | None,
    columns: npt.NDArray[Any],
    targets: npt.NDArray[np.float64],
    is_new: Callable[[list[int]], Flags],
) -> KeptSum | None:
    """Return what is kept behind a further batch; None while none could be judged.

    Args:
        kept: What was kept before it; None at first.
        columns: The columns [B, C].
        targets: A number for each row [B].
        is_new: Returns which rows were not seen before [B], and remembers them.
    """
    found = telling_sum(columns, targets)
    if found is None:
        return kept
    if not found.columns or (kept is not None and kept["columns"] != found.columns):
        return KeptSum(columns=[], is_exact=False, rows=0, seen=[])
    seen = [] if kept is None else [*kept["seen"]]
    rows = (0 if kept is None else kept["rows"]) + int(is_new(seen).sum())
    is_exact = found.is_exact and (kept is None or kept["is_exact"])
    return KeptSum(columns=found.columns, is_exact=is_exact, rows=rows, seen=seen)


def summed_by(kept: KeptSum, rows: int) -> list[int]:
    """Return the columns that make up a number; none if too few rows show it.

    Args:
        kept: What `summed_so_far` returned.
        rows: How many rows must show it; four times that if it is not exact.
    """
    return kept["columns"] if kept["rows"] >= rows * (1 if kept["is_exact"] else OF_CLASSES) else []
