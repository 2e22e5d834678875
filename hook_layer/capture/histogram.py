"""Computes histograms of tensors in TensorFlow's default buckets, exactly and in few passes.

The limits of the buckets are 0 and +-1e-12 * 1.1 ** k up to 1e20, with the largest doubles at both
ends (`InitDefaultBucketsInner` of TensorFlow's `histogram.cc`). A search for every number would
take ten times as long as the rest. So numbers are sorted into cells by the leading bits of their
float32 form, with one table lookup. Cells are much narrower than buckets. Only numbers in cells
that contain a limit are compared with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hook_layer.format.summary import HistogramSummary

__all__ = ["HistogramCounter", "bucket_limits"]

_FIRST_LIMIT: Final = 1e-12
_GROWTH: Final = 1.1
_LAST_LIMIT: Final = 1e20

_CELL_SHIFT: Final = 15  # a cell is the sign, the exponent and 8 bits of a float32's fraction
_NUM_CELLS: Final = 1 << (32 - _CELL_SHIFT)
_CHUNK: Final = 1 << 17  # numbers at a time; intermediate results fit into the cache
_FEW: Final = 1 << 14  # numbers for which a search is faster than the table


@lru_cache(maxsize=1)
def bucket_limits() -> NDArray[np.float64]:
    """Return the limits of the buckets, [buckets + 1], increasing."""
    positive = []
    limit = _FIRST_LIMIT
    while limit < _LAST_LIMIT:
        positive.append(limit)
        limit *= _GROWTH
    positive.append(float(np.finfo(np.float64).max))
    return np.array([-limit for limit in reversed(positive)] + [0.0] + positive)


class HistogramCounter:
    """Counts the numbers of one array after another; not thread-safe."""

    def __init__(self) -> None:
        self._limits = bucket_limits()
        self._wide = np.empty(_CHUNK, np.float64)
        self._narrow = np.empty(_CHUNK, np.float32)
        self._bits = np.empty(_CHUNK, np.uint32)
        self._cells = np.empty(_CHUNK, np.intp)
        self._is_split = np.empty(_CHUNK, np.bool_)

    def summary(self, array: NDArray[Any]) -> HistogramSummary | None:
        """Return the histogram of the finite numbers in an array; None without any.

        Args:
            array: Real numbers, [...].
        """
        with np.errstate(all="ignore"):  # sums may overflow; other numbers are counted apart
            return self._summary(array.ravel(order="K"))  # no copy, in any memory order

    def _summary(self, flat: NDArray[Any]) -> HistogramSummary | None:
        total = _Sums()
        in_buckets = np.zeros(len(self._limits) - 1)
        in_cells: NDArray[np.int64] | None = None
        for start in range(0, flat.size, _CHUNK):
            values, wide = self._finite(flat[start : start + _CHUNK], total)
            if flat.size > _FEW:
                counts, buckets = self._count_cells(values, wide)
                in_cells = counts if in_cells is None else np.add(in_cells, counts, out=in_cells)
            else:
                buckets = self._limits[1:-1].searchsorted(wide, side="right")
            in_buckets += np.bincount(buckets, minlength=len(in_buckets))
        if in_cells is not None:
            in_cells[_cell_table().split_cells] = 0
            used = in_cells.nonzero()[0]
            buckets = _cell_table().buckets[used]
            in_buckets += np.bincount(buckets, in_cells[used], minlength=len(in_buckets))
        return total.summary(self._limits[1:], in_buckets) if total.num else None

    def _finite(
        self, values: NDArray[Any], total: _Sums
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Add at most `_CHUNK` numbers, [numbers], to the sums.

        Returns:
            The finite ones in their own type and as float64, [finite numbers].
        """
        wide = self._wide[: values.size]
        np.copyto(wide, values, casting="unsafe")
        sum_squares = float(wide.dot(wide))
        if not np.isfinite(sum_squares):  # or only their squares are not finite
            finite = np.isfinite(wide)
            values, wide = values[finite], wide[finite]
            sum_squares = float(wide.dot(wide))
        if values.size:
            total.add(values, float(wide.sum()), sum_squares)
        return values, wide

    def _count_cells(
        self, values: NDArray[Any], wide: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return the count of each cell, [cells], and the buckets of numbers in split cells.

        Args:
            values: Finite numbers, [numbers].
            wide: The same as float64.
        """
        table = _cell_table()
        if values.dtype == np.float32 and values.flags.c_contiguous:
            narrow = values
        else:
            narrow = self._narrow[: values.size]
            np.copyto(narrow, wide, casting="unsafe")
        bits, cells = self._bits[: values.size], self._cells[: values.size]
        np.right_shift(narrow.view(np.uint32), _CELL_SHIFT, out=bits)
        np.copyto(cells, bits, casting="unsafe")
        is_split = self._is_split[: values.size]
        table.is_split.take(cells, out=is_split, mode="clip")
        buckets = table.buckets.take(cells[is_split])
        buckets += wide[is_split] >= self._limits[1:].take(buckets)
        return np.bincount(cells, minlength=_NUM_CELLS), buckets


class _Sums:
    """The fields of a histogram besides its buckets."""

    def __init__(self) -> None:
        self.num = 0
        self._min, self._max = np.inf, -np.inf
        self._sum = self._sum_squares = 0.0

    def add(self, values: NDArray[Any], sum_: float, sum_squares: float) -> None:
        """Add finite numbers, [numbers], at least one, and their sums."""
        self.num += values.size
        self._min = min(self._min, float(values.min()))
        self._max = max(self._max, float(values.max()))
        self._sum += sum_
        self._sum_squares += sum_squares

    def summary(self, limits: NDArray[np.float64], counts: NDArray[np.float64]) -> HistogramSummary:
        """Return the histogram.

        Args:
            limits: Right limits of the buckets, [buckets].
            counts: Count of each bucket, [buckets].
        """
        stored = _stored_buckets(counts)
        return HistogramSummary(
            min=self._min,
            max=self._max,
            num=float(self.num),
            sum=self._sum,
            sum_squares=self._sum_squares,
            limits=limits[stored].tolist(),
            counts=counts[stored].tolist(),
        )


class _CellTable(NamedTuple):
    """Properties of every cell.

    Attributes:
        buckets: Bucket of its smallest number, [cells].
        is_split: Whether other numbers of it may be in the next bucket, [cells].
        split_cells: The cells with `is_split`.
    """

    buckets: NDArray[np.intp]
    is_split: NDArray[np.bool_]
    split_cells: NDArray[np.intp]


@lru_cache(maxsize=1)
def _cell_table() -> _CellTable:
    first = (np.arange(_NUM_CELLS // 2, dtype=np.uint32) << _CELL_SHIFT).view(np.float32)
    first[np.isnan(first)] = np.inf
    # Numbers that were rounded to float32 come from a slightly larger range than the cell.
    low = np.nextafter(first, np.float32(0)).astype(np.float64)
    high = np.append(first[1:], np.inf).astype(np.float64)
    inner = bucket_limits()[1:-1]
    smallest = inner.searchsorted(np.concatenate([low, -high]), side="right")
    largest = inner.searchsorted(np.concatenate([high, -low]), side="right")
    is_split = smallest != largest
    return _CellTable(smallest, is_split, np.flatnonzero(is_split))


def _stored_buckets(counts: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the stored buckets: non-empty ones, and the last one of each gap."""
    is_used = counts > 0
    ends_gap = ~is_used & np.append(is_used[1:], False)
    ends_gap[: np.argmax(is_used)] = False
    stored: NDArray[np.intp] = np.flatnonzero(is_used | ends_gap)
    return stored
