"""What labels are like in other modes than training, in numbers that do not grow with the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import TensorRows

__all__ = ["remember_labels", "share_elsewhere"]

_FEWEST: Final = 50
_ENOUGH: Final = 100


def remember_labels(rows: TensorRows, known: dict[str, list[float]]) -> None:
    """Add up labels that are not of training.

    Args:
        rows: The labels of a step [R].
        known: Of at most 32 tensors the number of labels, their sum and sum of squares, the
            smallest and the largest; changed in place.
    """
    columns = [rows.column(name) for name in ("min", "max", "size", "mean", "std")]
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    rest = sorted(zip(rows.names, rows.workers, numbers, strict=True))
    for name, worker, (low, high, size, mean, std) in rest:
        key = f"{worker}/{name}"
        if not math.isfinite(mean + std) or (key not in known and len(known) >= MAX_SERIES):
            continue
        num, total, squares, least, most = known.get(key, (0.0, 0.0, 0.0, low, high))
        known[key] = [
            num + size,
            total + mean * size,
            squares + (mean**2 + std**2) * size,
            min(least, low),
            max(most, high),
        ]


def share_elsewhere(known: dict[str, list[float]], name: str, worker: str, value: float) -> float:
    """Return which share of labels outside of training differs from a value, at least; NaN of few.

    None is farther from it than the extremes: the mean square of distances is at most this share.

    Args:
        known: What `remember_labels` added up.
        name: Name of the labels.
        worker: Whose.
        value: The value.
    """
    numbers = known.get(f"{worker}/{name}")
    if numbers is None or numbers[0] < _FEWEST:
        return math.nan
    num, total, squares, least, most = numbers
    farthest = max(most - value, value - least)
    if farthest <= 0:
        return 0.0 if num >= _ENOUGH else math.nan
    square = (squares - 2 * value * total) / num + value * value
    return min(max(square / farthest**2, 0.0), 1.0)
