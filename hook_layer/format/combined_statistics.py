"""Combines statistics of parts into statistics of whole tensors.

Shape legend: P = parts, T = wholes, C = columns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["combined_statistics"]


def combined_statistics(
    parts: npt.NDArray[np.float64], tensors: npt.NDArray[np.intp], num_tensors: int
) -> npt.NDArray[np.float64]:
    """Return the statistics of whole tensors from those of their parts, [T, C].

    Sums of squared deviations are combined as by Chan, Golub and LeVeque (1979).

    Args:
        parts: Statistics of the parts [P, C].
        tensors: Index of each part's tensor [P].
        num_tensors: Number of tensors.
    """
    size, nan, inf, low, high, mean, std, _, l1, l2 = parts.T

    def total(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.bincount(tensors, np.nan_to_num(values), num_tensors).astype(np.float64)

    count = size - nan - inf  # finite elements; without any, the other statistics are NaN
    finite = total(count)
    lowest, highest = np.full(num_tensors, np.nan), np.full(num_tensors, np.nan)
    norm = np.zeros(num_tensors)
    np.fmin.at(lowest, tensors, low)
    np.fmax.at(highest, tensors, high)
    np.hypot.at(norm, tensors, np.nan_to_num(l2))
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = total(count * mean) / finite
        deviation = total(count * (std**2 + (mean - whole[tensors]) ** 2)) / finite
        absolute = np.where(finite > 0, total(l1), np.nan)
        columns = [
            *(total(each) for each in (size, nan, inf)),
            *(lowest, highest, whole, np.sqrt(deviation)),
            *(absolute / finite, absolute, np.where(finite > 0, norm, np.nan)),
        ]
    merged = np.stack(columns, axis=1)
    # A part without statistics, such as complex numbers, makes those of the whole unknown.
    merged[np.bincount(tensors, np.isnan(size), num_tensors) > 0] = np.nan
    return merged
