"""Bins of equal width, and means within bins.

Shape legend: N = examples, B = bins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["bin_edges", "mean_by_bin"]


def bin_edges(values: npt.ArrayLike, num_bins: int) -> npt.NDArray[np.float64]:
    """Return the edges of bins of equal width that hold all values [B + 1].

    Args:
        values: Finite numbers [N]; without numbers the bins range from 0 to 1.
        num_bins: B.

    Raises:
        ValueError: If there is no bin, or a value is not finite.
    """
    numbers = np.asarray(values, np.float64).reshape(-1)
    if num_bins < 1 or not np.isfinite(numbers).all():
        raise ValueError(
            f"{num_bins} bins: at least 1 bin and finite numbers are required; "
            "leave out what is not finite"
        )
    if not numbers.size:
        return np.linspace(0.0, 1.0, num_bins + 1)
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        width = max(abs(low), 1.0) / 2
        low, high = low - width, high + width
    return np.linspace(low, high, num_bins + 1)


def mean_by_bin(
    values: npt.ArrayLike, positions: npt.ArrayLike, edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the mean of the values in each bin [B]; NaN for a bin without any.

    A bin includes its lower edge; the last bin also includes its upper edge.

    Args:
        values: The values [N].
        positions: Number that selects the bin of each value [N]; outside of all bins it is ignored.
        edges: Edges of the bins in ascending order [B + 1].
    """
    numbers = np.asarray(values, np.float64).reshape(-1)
    where = np.asarray(positions, np.float64).reshape(-1)
    counts, _ = np.histogram(where, edges)
    sums, _ = np.histogram(where, edges, weights=numbers)
    means = np.full(len(counts), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means
