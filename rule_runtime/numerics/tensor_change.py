"""Measures changes of tensors between two steps, from values or bounds by statistics.

Two tensors a and b are close if |a - b| <= atol + rtol * |b| holds for every element, as in
`numpy.allclose`. The update ratio of a weight is mean(|now - before|) / (mean(|now|) + epsilon).

Shape legend: N = elements of a tensor, R = pairs of tensors, C = statistics, in the order of
`STATISTICS_COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = [
    "Tolerance",
    "all_close",
    "are_identical",
    "movement",
    "proven_different",
    "ratio_bounds",
    "update_ratio",
]

_CHUNK: Final = 1 << 20
"""Elements that are compared at a time; it bounds the extra memory."""
_SUM_ERROR: Final = 1e-5
"""Error of a mean relative to that of the magnitudes; accelerators sum in float32."""
_EXTREME_ERROR: Final = 1e-12
"""Error of a minimum or maximum relative to the magnitudes; extremes are not rounded."""

_FEWEST_ELEMENTS: Final = 8
"""Minimum elements of a weight whose norm is a scale. A few numbers, such as the slopes of a line,
are coefficients in units of the data: they start anywhere and pass through zero.
"""

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Tolerance(NamedTuple):
    """Tolerance for close tensors, as in `numpy.allclose`."""

    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = False


def all_close(one: npt.NDArray[Any], other: npt.NDArray[Any], tolerance: Tolerance) -> bool:
    """Return whether two tensors have the same shape and are close; strings must be equal."""
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        return bool(np.array_equal(one, other))
    return all(np.allclose(x, y, *tolerance) for x, y in _chunks(one, other))


def update_ratio(now: npt.NDArray[Any], before: npt.NDArray[Any], epsilon: float) -> float:
    """Return the update ratio of a weight; NaN if an element is not finite."""
    distance = magnitude = 0.0
    with np.errstate(all="ignore"):
        for one, other in _chunks(now, before):
            x = one.astype(np.float64)
            distance += float(np.abs(x - other.astype(np.float64)).sum())
            magnitude += float(np.abs(x).sum())
    if not now.size or not np.isfinite(distance + magnitude):
        return float("nan")
    return distance / now.size / (magnitude / now.size + epsilon)


def _chunks(
    one: npt.NDArray[Any], other: npt.NDArray[Any]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    first, second = one.reshape(-1), other.reshape(-1)
    for start in range(0, first.size, _CHUNK):
        yield first[start : start + _CHUNK], second[start : start + _CHUNK]


def are_identical(one: Vector, other: Vector) -> Mask:
    """Return which pairs have exactly the same statistics [R].

    Large tensors that differ almost never have equal statistics.
    """
    same = ((one == other) | (np.isnan(one) & np.isnan(other))).all(axis=1)
    return np.asarray(same & ~np.isnan(_columns(one)["l2"]) & (_columns(one)["inf"] == 0))


def proven_different(one: Vector, other: Vector, tolerance: Tolerance) -> Mask:
    """Return which pairs cannot be close, from their sizes, extremes and means [R]."""
    a, b = _columns(one), _columns(other)
    different: Mask = np.zeros(len(one), dtype=np.bool_)
    for name in ("size", "nan", "inf"):
        different |= np.abs(a[name] - b[name]) > 0
    if not tolerance.equal_nan:
        different |= (a["nan"] > 0) | (b["nan"] > 0)
    largest = np.maximum(np.abs(b["min"]), np.abs(b["max"]))
    error = {"mean": _SUM_ERROR * (a["abs_mean"] + b["abs_mean"])}
    with np.errstate(over="ignore", invalid="ignore"):
        for name in ("min", "max", "mean"):
            rounding = error.get(name, _EXTREME_ERROR * (np.abs(a[name]) + largest))
            allowed = tolerance.atol + tolerance.rtol * largest + rounding
            different |= np.abs(a[name] - b[name]) > allowed
    return different


def ratio_bounds(now: Vector, before: Vector, epsilon: float) -> tuple[Vector, Vector]:
    """Return lower and upper bounds of the update ratios [R]; NaN if unknown.

    By the triangle inequality, the mean change is at most the sum of the mean magnitudes. It is at
    least their difference, the difference of the means, and 1 / N of that of the extremes.
    """
    a, b = _columns(now), _columns(before)
    error = _SUM_ERROR * (a["abs_mean"] + b["abs_mean"])
    with np.errstate(all="ignore"):
        change = {name: np.abs(a[name] - b[name]) for name in ("mean", "abs_mean", "min", "max")}
        of_extremes = np.maximum(change["min"], change["max"]) / a["size"]
        of_means = np.maximum(change["mean"], change["abs_mean"]) - error
        lower = np.maximum(of_extremes, of_means) / (a["abs_mean"] * (1 + _SUM_ERROR) + epsilon)
        upper = a["abs_mean"] + b["abs_mean"] + error
        upper /= a["abs_mean"] * (1 - _SUM_ERROR) + epsilon
    is_known = _are_finite(a, b)
    return np.where(is_known, lower, np.nan), np.where(is_known, upper, np.nan)


def movement(now: Vector, before: Vector) -> tuple[Vector, Vector]:
    """Return the movement of weights [R]; NaN for unknown ones, zero ones and a few numbers.

    The first vector is a lower bound of the norm of the change, relative to the norm before: the
    change of the norm, of the extremes, and those of mean and standard deviation times sqrt(N). The
    second vector estimates the movement of an element, relative to the root mean square, by the
    largest change of extremes, mean and standard deviation.
    """
    a, b = _columns(now), _columns(before)
    with np.errstate(all="ignore"):
        change = {name: np.abs(a[name] - b[name]) for name in ("min", "max", "mean", "std", "l2")}
        root = np.sqrt(b["size"])
        of_extremes = np.maximum(change["min"], change["max"])
        of_means = np.maximum(change["mean"], change["std"])
        bound = np.maximum(np.maximum(of_extremes, of_means * root), change["l2"]) / b["l2"]
        moved = np.maximum(of_extremes, of_means) * root / b["l2"]
    is_usable = (a["size"] == b["size"]) & (b["size"] >= _FEWEST_ELEMENTS)
    is_usable &= (a["l2"] > 0) & (b["l2"] > 0)
    is_known = is_usable & np.isfinite(bound) & np.isfinite(moved)
    return np.where(is_known, bound, np.nan), np.where(is_known, moved, np.nan)


def _columns(matrix: Vector) -> dict[str, Vector]:
    return {name: matrix[:, at] for at, name in enumerate(STATISTICS_COLUMNS)}


def _are_finite(a: dict[str, Vector], b: dict[str, Vector]) -> Mask:
    """Return which pairs have equal sizes and only finite elements [R]."""
    is_finite: Mask = a["size"] == b["size"]
    for statistics in (a, b):
        is_finite &= (statistics["nan"] == 0) & (statistics["inf"] == 0)
    return is_finite
