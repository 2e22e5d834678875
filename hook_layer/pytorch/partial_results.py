"""Combines partial statistics from devices into statistics of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.statistics import statistics_row

__all__ = ["combined"]


def combined(
    sizes: Sequence[int], num_rows: Sequence[int], partials: NDArray[np.float64]
) -> list[tuple[float, ...]]:
    """Combine the partial results of rows into one row of statistics per tensor.

    Args:
        sizes: Numbers of the tensors' elements, [T].
        num_rows: How many rows each tensor has, [T].
        partials: Partial results of all rows, in order, as computed by
            `hook_layer.pytorch.device_statistics`, [P, 10].
    """
    starts: NDArray[np.int64] = np.cumsum(num_rows) - np.array(num_rows)
    count, num_nan, low, high, factor, total, rest, mean, absolute, squared = partials.T
    counts, num_nans = np.add.reduceat(count, starts), np.add.reduceat(num_nan, starts)
    lows, highs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    with np.errstate(all="ignore"):
        # Scaling by about the tensor's largest element prevents overflow and underflow.
        largest = np.maximum(np.maximum(highs, -lows), np.finfo(np.float64).tiny)
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
        scale = 1 / factor / np.repeat(unit, num_rows)
        means = np.add.reduceat(scale * (total + rest), starts) / counts
        offset = scale * mean - np.repeat(means, num_rows)
        moved = scale * (total + rest - count * mean)
        squares = np.square(scale) * squared + offset * (2 * moved + count * offset)
        variances = np.maximum(np.add.reduceat(squares, starts), 0) / counts
        variances[lows == highs] = 0
        columns = {
            "low": lows,
            "high": highs,
            "mean": means * unit,
            "std": np.sqrt(variances) * unit,
            "l1": np.add.reduceat(scale * absolute, starts) * unit,
            "l2": np.sqrt((variances + np.square(means)) * counts) * unit,
        }
    columns = {name: np.where(counts, column, np.nan) for name, column in columns.items()}
    num_infs = np.array(sizes) - counts - num_nans
    return [
        statistics_row(size, int(nan), int(inf), **dict(zip(columns, row, strict=True)))
        for size, nan, inf, *row in zip(
            sizes,
            num_nans,
            num_infs,
            *(column.tolist() for column in columns.values()),
            strict=True,
        )
    ]
