"""What labels are like in other modes than training, in numbers that do not grow with the run.

Shape legend: R = rows of labels, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import TensorRows

__all__ = [
    "NOTHING_KNOWN",
    "Elsewhere",
    "begin_anew",
    "has_others",
    "labels_elsewhere",
    "num_rows",
    "remember",
]

_FEWEST: Final = 32
_FEWEST_OTHERS: Final = 1.99
_LARGEST: Final = 1e100


class Elsewhere(NamedTuple):
    """How labels differ outside of training from a value that they have in it.

    Attributes:
        share: Which share of the rows differs, at least; NaN if these are fewer than two, or of
            fewer than 32 rows.
        num_rows: Rows of the longest phase, for the same rows may come again in each.
    """

    share: float
    num_rows: float


NOTHING_KNOWN: Final = Elsewhere(math.nan, 0.0)


def remember(rows: TensorRows, kinds: Sequence[str], known: dict[str, list[float]]) -> None:
    """Add up labels that are not of training.

    Args:
        rows: The labels of a step [R].
        kinds: Of which kind each is [R]; those of several kinds are not of one task.
        known: Of at most 32 tensors and kinds the number of rows, the mean of their elements, the
            sum of squares of distances from it, the smallest and the largest, the rows of the phase
            and those of the longest one; changed in place.
    """
    columns = [rows.column(name).tolist() for name in ("min", "max", "mean", "std")]
    numbers = zip(*columns, num_rows(rows), strict=True)
    for name, worker, kind, (low, high, mean, std, num) in sorted(
        zip(rows.names, rows.workers, kinds, numbers, strict=True)
    ):
        key = f"{worker}/{name}/{kind}"
        is_judged = num > 0 and -_LARGEST < low <= high < _LARGEST and math.isfinite(mean + std)
        if not is_judged or (key not in known and len(known) >= MAX_SERIES):
            continue
        before, middle, squares, least, most, phase, longest = known.get(
            key, (0.0, mean, 0.0, low, high, 0.0, 0.0)
        )
        total, apart = before + num, mean - middle
        known[key] = [
            total,
            middle + apart * num / total,
            squares + std * std * num + apart * apart * before * num / total,
            min(least, low),
            max(most, high),
            phase + num,
            max(longest, phase + num),
        ]


def begin_anew(known: dict[str, list[float]]) -> None:
    """Let what is remembered next be of a new phase, in which the same rows may come again.

    Args:
        known: What `remember` added up.
    """
    for numbers in known.values():
        numbers[5] = 0.0


def labels_elsewhere(known: dict[str, list[float]], key: str, value: float) -> Elsewhere:
    """Return how labels outside of training differ from a value.

    None is farther from it than the extremes: the mean square of distances is at most the share of
    elements that differ, and of rows with such elements there are not fewer.

    Args:
        known: What `remember` added up.
        key: Worker, name and kind of the labels, with a slash between two.
        value: The value.
    """
    numbers = known.get(key)
    if numbers is None or not abs(value) < _LARGEST:
        return NOTHING_KNOWN
    total, middle, squares, least, most, _, longest = numbers
    farthest = max(most - value, value - least)
    if farthest <= 0:
        return Elsewhere(0.0, longest)
    if longest < _FEWEST:
        return NOTHING_KNOWN
    square = squares / total + (middle - value) ** 2
    share = min(square / farthest**2, 1.0)
    # One row may be an accident, and so may one large object in a single image.
    return Elsewhere(share if share * longest >= _FEWEST_OTHERS else math.nan, longest)


def has_others(known: dict[str, list[float]], key: str, low: float, high: float) -> bool:
    """Return whether labels outside of training have another smallest or largest element.

    Args:
        known: What `remember` added up.
        key: Worker, name and kind of the labels, with a slash between two.
        low: Smallest element in training.
        high: Largest element in training.
    """
    numbers = known.get(key)
    return numbers is not None and (numbers[3], numbers[4]) != (low, high)


def num_rows(rows: TensorRows) -> list[float]:
    """Return the rows of each tensor [R]: elements of one, as pixels, are much alike.

    Args:
        rows: The tensors [R].
    """
    sizes = rows.column("size").tolist()
    return [shape[0] if shape else size for shape, size in zip(rows.shapes, sizes, strict=True)]
