"""Columns of inputs that have parted two classes in all batches so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.told_so_far import OF_CLASSES
from rule_runtime.numerics.class_columns import rows_shown
from rule_runtime.numerics.class_limits import Limits, comes_near, limits_of, parting
from rule_runtime.numerics.column_blocks import Flags

__all__ = ["KeptParting", "parted_by", "parted_so_far"]

_MOST_PARTING: Final = 2


class KeptParting(TypedDict):
    """What is kept of the columns of an input that part two classes.

    Attributes:
        limits: What is known of them; without columns where none is left.
        rows: How many rows showed it.
        seen: Numbers that stand for these rows.
        batches: How many batches had rows of both classes, enough to tell what comes near.
        near: In how many of these a further column came near.
    """

    limits: Limits
    rows: int
    seen: list[int]
    batches: int
    near: int


def parted_so_far(
    kept: KeptParting | None,
    columns: npt.NDArray[Any],
    targets: npt.NDArray[np.float64],
    is_new: Callable[[list[int]], Flags],
) -> KeptParting | None:
    """Return what is kept behind a further batch; None while nothing is known.

    Args:
        kept: What was kept before it; None at first.
        columns: The columns [B, C].
        targets: The class of each row [B].
        is_new: Returns which rows were not seen before [B], and remembers them.
    """
    limits = limits_of(columns, targets, kept and kept["limits"])
    if limits is None:
        return None
    now: KeptParting = kept or {"limits": limits, "rows": 0, "seen": [], "batches": 0, "near": 0}
    if not limits["columns"]:
        return now | {"limits": limits, "seen": []}
    classes = np.unique(targets, return_inverse=True)[1]
    if not classes.any():
        return now | {"limits": limits}
    seen, order = [*now["seen"]], np.argsort(classes, kind="stable")
    is_near = comes_near(columns, targets, limits["columns"])
    return {
        "limits": limits,
        "rows": now["rows"] + rows_shown(classes[order], order, is_new(seen)),
        "seen": seen,
        "batches": now["batches"] + (is_near is not None),
        "near": now["near"] + bool(is_near),
    }


def parted_by(kept: KeptParting | None, rows: int) -> list[int]:
    """Return the columns that part two classes; none if more than two do, as in images and texts.

    None, too, if in half of the batches or more a further column came near.

    Args:
        kept: What is kept of them.
        rows: How many rows must show it of a number; `OF_CLASSES` times that count here.
    """
    if kept is None or kept["rows"] < OF_CLASSES * rows:
        return []
    found = parting(kept["limits"])
    is_alone = 2 * kept["near"] < max(kept["batches"], 1)
    return found if len(found) <= _MOST_PARTING and is_alone else []
