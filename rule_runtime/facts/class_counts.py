"""How many rows have shown that each class is told, from step to step.

Shape legend: B = rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.told_so_far import OF_CLASSES
from rule_runtime.numerics.class_columns import may_count
from rule_runtime.numerics.column_blocks import Flags

__all__ = ["counted", "shown_classes"]

_EACH: Final = 3
_MOST_OF_FREQUENT: Final = 4


def counted(
    counts: dict[str, int], classes: npt.NDArray[np.float64], message: Iterable[str], is_new: Flags
) -> dict[str, int]:
    """Return how many rows showed each class, with those of a further batch.

    Args:
        counts: What this returned for the batch before, by the class's number as text.
        classes: Whole numbers from 0 on [B].
        message: The classes that are told.
        is_new: Which rows were not seen before [B].
    """
    shown = is_new & may_count(classes) & np.isin(classes, [float(number) for number in message])
    totals = dict(counts)
    for one, count in zip(*np.unique(classes[shown], return_counts=True), strict=True):
        totals[str(int(one))] = totals.get(str(int(one)), 0) + int(count)
    return totals


def shown_classes(counts: dict[str, int], rows: int, fewest: int) -> list[str]:
    """Return the classes that three rows or more showed; none if that is too few, or by too few.

    Of the most frequent one not more than 4 rows count for each of the others.

    Args:
        counts: What `counted` returned.
        rows: How many rows must show that a column tells a number; four times that a class.
        fewest: How many classes must be shown.
    """
    shown = {number: count for number, count in counts.items() if count >= _EACH}
    most = max(shown.values(), default=0)
    others = sum(shown.values()) - most
    num_shown = others + min(most, _MOST_OF_FREQUENT * others)
    return [*shown] if len(shown) >= fewest and num_shown >= OF_CLASSES * rows else []
