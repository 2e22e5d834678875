"""Computes the statistics of a tensor, as defined for the index file's statistics block.

Shape legend: N = number of elements, F = number of finite elements, C = number of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = ["tensor_statistics"]

_CHUNK: Final = 1 << 20
"""Elements converted to float64 at a time; it bounds the extra memory."""


def tensor_statistics(tensor: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the statistics of one tensor [C], in the order of `STATISTICS_COLUMNS`.

    `size`, `nan` and `inf` count elements. The other statistics cover the finite elements in
    float64, and are NaN without any. `std` is that of the population, by the corrected two-pass
    algorithm of Chan, Golub and LeVeque (1983), which stays exact for a large mean. Complex tensors
    have the norms of their magnitudes, but no min, max, mean or std. Strings only have a size.
    """
    row = dict.fromkeys(STATISTICS_COLUMNS, math.nan)
    row["size"] = float(tensor.size)
    if tensor.dtype.kind in "biufc":
        flat = np.asarray(tensor).reshape(-1)
        row |= _of_numbers(np.abs(flat) if flat.dtype.kind == "c" else flat)
        if flat.dtype.kind == "c":
            row["nan"] = float(np.count_nonzero(np.isnan(flat)))
            row["inf"] = float(flat.size - np.count_nonzero(np.isfinite(flat))) - row["nan"]
            row |= dict.fromkeys(("min", "max", "mean", "std"), math.nan)
    return np.array([row[name] for name in STATISTICS_COLUMNS])


def _of_numbers(flat: npt.NDArray[Any]) -> dict[str, float]:
    num_nan = num_finite = 0
    low, high = math.inf, -math.inf
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        finite = chunk[np.isfinite(chunk)]
        num_nan += int(np.count_nonzero(np.isnan(chunk)))
        num_finite += finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    counts = {"nan": float(num_nan), "inf": float(flat.size - num_finite - num_nan)}
    if not num_finite:
        return counts
    return counts | {"min": low, "max": high} | _moments(flat, num_finite, max(abs(low), abs(high)))


def _moments(flat: npt.NDArray[Any], num_finite: int, magnitude: float) -> dict[str, float]:
    """Return mean, std and norms."""
    # Division by a power of two is exact and keeps squares within the range of float64.
    unit = math.ldexp(1.0, math.frexp(magnitude)[1] - 1) if magnitude else 1.0
    total, l1, squares = 0.0, 0.0, 0.0
    for x in _finite_chunks(flat, unit):
        total += float(x.sum())
        l1 += float(np.abs(x).sum())
        squares += float(np.dot(x, x))
    mean = total / num_finite
    # Subtract the rounding error of the mean, so that a constant tensor has a std of 0.
    residual, squares_about_mean = 0.0, 0.0
    for x in _finite_chunks(flat, unit):
        distance = np.subtract(x, mean, out=x)
        residual += float(distance.sum())
        squares_about_mean += float(np.dot(distance, distance))
    variance = max(squares_about_mean - residual * residual / num_finite, 0.0) / num_finite
    return {
        "mean": (mean + residual / num_finite) * unit,
        "std": math.sqrt(variance) * unit,
        "abs_mean": l1 / num_finite * unit,
        "l1": l1 * unit,
        "l2": math.sqrt(squares) * unit,
    }


def _finite_chunks(flat: npt.NDArray[Any], unit: float) -> Iterator[npt.NDArray[np.float64]]:
    """Yield the finite elements in float64, divided by `unit`, in chunks."""
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        yield chunk[np.isfinite(chunk)].astype(np.float64) / unit
