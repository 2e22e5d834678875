"""The summary of a tensor that goes into the index: the numpy implementation.

One row of `STATISTICS_COLUMNS` per tensor: `size`, `nan` and `inf` count elements; the others are
of the finite elements, with `std` of the population. Everything is accumulated in float64, in two
passes over chunks that stay in the cache, so that neither large tensors nor cancellation (values
far from zero that lie close together) cost accuracy. Frameworks have faster implementations of
their own, e.g. `hook_layer.pytorch.statistics`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = [
    "NO_STATISTICS",
    "array_statistics",
    "has_statistics",
    "number_statistics",
    "statistics_row",
]

_CHUNK: Final = 1 << 16
_NUMERIC_KINDS: Final = "fiub"

NO_STATISTICS: Final[tuple[float, ...]] = (math.nan,) * len(STATISTICS_COLUMNS)
"""Row of a tensor without statistics (complex numbers, strings): only its checksum counts."""


def has_statistics(dtype: np.dtype[Any]) -> bool:
    """Tell whether tensors of this type have statistics: real numbers and booleans do."""
    return dtype.kind in _NUMERIC_KINDS


def array_statistics(array: NDArray[Any]) -> tuple[float, ...]:
    """Return the statistics of one array.

    Args:
        array: Values, [...]; bool counts as 0 and 1.

    Returns:
        One number for each of `STATISTICS_COLUMNS`; NaN where there is none.
    """
    if not has_statistics(array.dtype):
        return NO_STATISTICS
    if array.size == 1:
        return number_statistics(float(array.reshape(())))
    flat = array.reshape(-1)
    chunks = [flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK)]
    num_nan, num_inf, low, high = _count_and_bound(chunks)
    count = flat.size - num_nan - num_inf
    if count == 0:
        return statistics_row(flat.size, num_nan, num_inf)
    # Scaled, so that neither the squares of huge values overflow nor those of tiny ones vanish.
    scale = max(abs(low), abs(high)) or 1.0
    total = absolute = squares = 0.0
    for chunk in chunks:
        values = _finite(chunk) / scale
        total += float(values.sum())
        np.abs(values, out=values)
        absolute += float(values.sum())
        squares += float(np.dot(values, values))
    mean = total / count
    deviation = 0.0
    for chunk in chunks:
        values = _finite(chunk) / scale - mean
        deviation += float(np.dot(values, values))
    return statistics_row(
        flat.size,
        num_nan,
        num_inf,
        low=low,
        high=high,
        mean=mean * scale,
        std=math.sqrt(deviation / count) * scale,
        l1=absolute * scale,
        l2=math.sqrt(squares) * scale,
    )


def number_statistics(value: float) -> tuple[float, ...]:
    """Return the statistics of a tensor of one element."""
    if math.isnan(value):
        return statistics_row(1, 1, 0)
    if math.isinf(value):
        return statistics_row(1, 0, 1)
    size = abs(value)
    return (1.0, 0.0, 0.0, value, value, value, 0.0, size, size, size)


def statistics_row(
    size: int,
    num_nan: int,
    num_inf: int,
    *,
    low: float = math.nan,
    high: float = math.nan,
    mean: float = math.nan,
    std: float = math.nan,
    l1: float = math.nan,
    l2: float = math.nan,
) -> tuple[float, ...]:
    """Return the numbers in the order of `STATISTICS_COLUMNS`.

    Without a finite element all but the counts are missing (NaN).
    """
    count = size - num_nan - num_inf
    abs_mean = l1 / count if count else math.nan
    return (float(size), float(num_nan), float(num_inf), low, high, mean, std, abs_mean, l1, l2)


def _count_and_bound(chunks: list[NDArray[Any]]) -> tuple[int, int, float, float]:
    """Return the number of NaN and of Inf, and the least and greatest finite value."""
    num_nan = num_inf = 0
    low, high = math.inf, -math.inf
    for chunk in chunks:
        values = chunk
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            num_nan += int(np.isnan(chunk).sum())
            num_inf += int(np.isinf(chunk).sum())
            values = chunk[np.isfinite(chunk)]
        if values.size:
            low = min(low, float(values.min()))
            high = max(high, float(values.max()))
    return num_nan, num_inf, low, high


def _finite(chunk: NDArray[Any]) -> NDArray[np.float64]:
    """Return the finite values of a chunk as a float64 copy."""
    values = chunk.astype(np.float64)
    if chunk.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            values = values[finite]
    return values
