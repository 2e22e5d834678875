"""How large an update was relative to the weights, exactly or within bounds from statistics.

The ratio is mean(|w - w_ref|) / (mean(|w|) + epsilon). The triangle inequality bounds its
numerator: it is at most mean(|w|) + mean(|w_ref|), and at least the difference of the two means,
that of the two means of magnitudes, and 1/N of that of the two extremes.

Shape legend: N = elements of a tensor, R = pairs of tensors, C = statistics, in the order of
`STATISTICS_COLUMNS`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = ["ratio_bounds", "update_ratio"]

_CHUNK: Final = 1 << 20
"""Elements that are converted to float64 at a time, which bounds the extra memory."""

_SUM_ERROR: Final = 1e-5
"""Error of a mean relative to that of the magnitudes; accelerators add up in float32."""

_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}

Vector = npt.NDArray[np.float64]


def update_ratio(now: npt.NDArray[Any], before: npt.NDArray[Any], epsilon: float) -> float:
    """Return the ratio of two values of a tensor; NaN if an element of either is not finite.

    Args:
        now: The weights [N].
        before: The weights at the reference step [N].
        epsilon: What is added to the denominator.

    Raises:
        ValueError: If the shapes differ.
    """
    if now.shape != before.shape:
        raise ValueError(f"the shapes {now.shape} and {before.shape} differ")
    one, other = now.reshape(-1), before.reshape(-1)
    distance = magnitude = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, one.size, _CHUNK):
            x = one[start : start + _CHUNK].astype(np.float64)
            y = other[start : start + _CHUNK].astype(np.float64)
            distance += float(np.abs(x - y).sum())
            magnitude += float(np.abs(x).sum())
    if not one.size or not np.isfinite(distance) or not np.isfinite(magnitude):
        return float("nan")
    return distance / one.size / (magnitude / one.size + epsilon)


def ratio_bounds(now: Vector, before: Vector, epsilon: float) -> tuple[Vector, Vector]:
    """Return what the ratios are at least and at most [R]; NaN where the statistics do not tell.

    Args:
        now: Statistics of the weights [R, C].
        before: Statistics of the weights at the reference step [R, C].
        epsilon: What is added to the denominator.
    """
    a = {name: now[:, at] for name, at in _AT.items()}
    b = {name: before[:, at] for name, at in _AT.items()}
    is_sound = a["size"] == b["size"]
    for statistics in (a, b):
        is_sound &= (statistics["nan"] == 0) & (statistics["inf"] == 0)
    error = _SUM_ERROR * (a["abs_mean"] + b["abs_mean"])
    with np.errstate(all="ignore"):
        lower = np.maximum.reduce(
            [
                np.abs(a["mean"] - b["mean"]) - error,
                np.abs(a["abs_mean"] - b["abs_mean"]) - error,
                np.abs(a["min"] - b["min"]) / a["size"],
                np.abs(a["max"] - b["max"]) / a["size"],
                np.zeros(len(now)),
            ]
        )
        upper = a["abs_mean"] + b["abs_mean"] + error
        lowest = lower / (a["abs_mean"] * (1 + _SUM_ERROR) + epsilon)
        highest = upper / (a["abs_mean"] * (1 - _SUM_ERROR) + epsilon)
    return np.where(is_sound, lowest, np.nan), np.where(is_sound, highest, np.nan)
