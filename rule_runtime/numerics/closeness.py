"""Compares two tensors within a tolerance, by their statistics where these suffice.

Two tensors a and b are close if |a - b| <= atol + rtol * |b| holds for every element, as
`numpy.allclose` has it. For that it is necessary, by the triangle inequality, that their means,
their extremes and their root mean squares are as close; so statistics can prove a difference, and
of constant tensors (a scalar is one) they tell everything.

Shape legend: R = pairs of tensors, C = statistics, in the order of `STATISTICS_COLUMNS`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = ["Tolerance", "all_close", "are_identical", "proven_close", "proven_different"]

_CHUNK: Final = 1 << 20
"""Elements that are compared at a time, which bounds the extra memory."""

_SUM_ERROR: Final = 1e-5
"""Error of a mean relative to that of the magnitudes; accelerators add up in float32."""

_EXTREME_ERROR: Final = 1e-12
"""Likewise of a minimum or maximum, which no computation rounds."""

_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Tolerance(NamedTuple):
    """How close two tensors must be.

    Attributes:
        rtol: Allowed difference relative to the second tensor.
        atol: Allowed difference besides.
        equal_nan: Whether a NaN equals a NaN.
    """

    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = False


def all_close(one: npt.NDArray[Any], other: npt.NDArray[Any], tolerance: Tolerance) -> bool:
    """Return whether two tensors have the same shape and are close; a few elements at a time.

    Texts are close if they are equal.

    Args:
        one: A tensor [...].
        other: Another tensor.
        tolerance: How close they must be; relative to `other`.
    """
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        return bool(np.array_equal(one, other))
    first, second = one.reshape(-1), other.reshape(-1)
    return all(
        np.allclose(first[start : start + _CHUNK], second[start : start + _CHUNK], *tolerance)
        for start in range(0, first.size, _CHUNK)
    )


def proven_different(one: Vector, other: Vector, tolerance: Tolerance) -> Mask:
    """Tell which pairs cannot be close, by their statistics [R].

    Args:
        one: Statistics of the first tensors [R, C].
        other: Statistics of the second tensors [R, C].
        tolerance: How close they must be; relative to `other`.
    """
    a, b = _columns(one), _columns(other)
    different: Mask = np.zeros(len(one), dtype=np.bool_)
    for name in ("size", "nan", "inf"):
        different |= _known(a[name], b[name]) & (a[name] != b[name])
    if not tolerance.equal_nan:
        different |= (a["nan"] > 0) | (b["nan"] > 0)
    magnitude = a["abs_mean"] + b["abs_mean"]
    for name in ("mean", "abs_mean"):
        different |= _exceeds(
            a[name], b[name], tolerance, scale=b["abs_mean"], error=_SUM_ERROR * magnitude
        )
    largest = np.maximum(np.abs(b["min"]), np.abs(b["max"]))
    for name in ("min", "max"):
        error = _EXTREME_ERROR * np.maximum(np.abs(a[name]), largest)
        different |= _exceeds(a[name], b[name], tolerance, scale=largest, error=error)
    rms_a, rms_b = _rms(a), _rms(b)
    error = _SUM_ERROR * (rms_a + rms_b)
    different |= _exceeds(rms_a, rms_b, tolerance, scale=rms_b, error=error)
    different |= _exceeds(a["std"], b["std"], tolerance, scale=rms_b, error=error)
    return different


def proven_close(one: Vector, other: Vector, tolerance: Tolerance) -> Mask:
    """Tell which pairs are close for certain, by their statistics [R]: those of constant tensors.

    That their shapes are equal must be known otherwise.

    Args:
        one: Statistics of the first tensors [R, C].
        other: Statistics of the second tensors [R, C].
        tolerance: How close they must be; relative to `other`.
    """
    a, b = _columns(one), _columns(other)
    told = a["size"] == b["size"]
    for statistics in (a, b):
        told &= (statistics["nan"] == 0) & (statistics["inf"] == 0)
        told &= statistics["min"] == statistics["max"]
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(a["min"] - b["min"])
        within = distance <= tolerance.atol + tolerance.rtol * np.abs(b["min"])
    mask: Mask = told & within
    return mask


def are_identical(one: Vector, other: Vector, tolerance: Tolerance) -> Mask:
    """Tell which pairs have the same statistics to the last bit [R], known well enough.

    Tensors of many elements that differ practically never do.

    Args:
        one: Statistics of the first tensors [R, C].
        other: Statistics of the second tensors [R, C].
        tolerance: Says whether a NaN equals a NaN.
    """
    a = _columns(one)
    same = ((one == other) | (np.isnan(one) & np.isnan(other))).all(axis=1)
    known = ~np.isnan(a["l2"]) & (a["inf"] == 0)
    if not tolerance.equal_nan:
        known &= a["nan"] == 0
    mask: Mask = same & known
    return mask


def _columns(matrix: Vector) -> dict[str, Vector]:
    return {name: matrix[:, at] for name, at in _AT.items()}


def _known(one: Vector, other: Vector) -> Mask:
    mask: Mask = ~np.isnan(one) & ~np.isnan(other)
    return mask


def _rms(statistics: dict[str, Vector]) -> Vector:
    num_finite = statistics["size"] - statistics["nan"] - statistics["inf"]
    rms: Vector = statistics["l2"] / np.sqrt(np.where(num_finite > 0, num_finite, np.nan))
    return rms


def _exceeds(
    one: Vector, other: Vector, tolerance: Tolerance, *, scale: Vector, error: Vector
) -> Mask:
    """Tell where two statistics differ by more than tolerance and rounding; not where unknown."""
    with np.errstate(over="ignore", invalid="ignore"):
        mask: Mask = np.abs(one - other) > tolerance.atol + tolerance.rtol * scale + error
    return mask
