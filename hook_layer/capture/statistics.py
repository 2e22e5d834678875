"""Defines and computes the statistics of a tensor in the index.

One row of `STATISTICS_COLUMNS` per tensor: `size`, `nan` and `inf` count elements; the others cover
the finite elements, with the population `std`.

Short arrays are computed together, in float64. A long array is read once from memory, in chunks
that stay in the cache during all reductions. Its sums are float32 within rows of 1,024 elements and
float64 beyond, so the error of a mean is below 1e-7 of the mean absolute value. Difficult arrays
are computed again in float64 with several passes: those with NaN or Inf, with squares that overflow
or underflow, or with a std that suffers from cancellation.

All of this runs in one thread. BLAS and OpenMP would divide long vectors among their threads, which
then wait for each other on cores that training uses; batches of short products use one thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = [
    "CHUNK",
    "NO_STATISTICS",
    "SMALLEST_SQUARED",
    "Chunks",
    "array_statistics",
    "chunked_statistics",
    "has_statistics",
    "number_statistics",
    "segment_statistics",
    "statistics_row",
    "statistics_rows",
]

Chunks: TypeAlias = Callable[[], Iterable[NDArray[Any]]]
"""Returns the elements of a tensor as arrays [n] of at most `CHUNK` each, again at every call."""

CHUNK: Final = 1 << 17
_ROW: Final = 1024
_SHORT: Final = 8192  # elements; below, the number of calls dominates the time
_NUMERIC_KINDS: Final = "fiub"
_SHORT_BYTES: Final = 2  # types of at most this size fit into float32
SMALLEST_SQUARED: Final = 1e-15
"""If the largest element is at least this, squares that underflow in float32 do not matter."""
# Below this ratio of var and mean(x^2), the difference of squares loses too many digits.
_CANCELLATION: Final = 0.1

NO_STATISTICS: Final[tuple[float, ...]] = (math.nan,) * len(STATISTICS_COLUMNS)
"""Row of a tensor without statistics (complex numbers, strings), which has only a checksum."""


def has_statistics(dtype: np.dtype[Any]) -> bool:
    """Return whether tensors of this type have statistics: real numbers and booleans do."""
    return dtype.kind in _NUMERIC_KINDS


def array_statistics(array: NDArray[Any]) -> tuple[float, ...]:
    """Return the statistics of one array.

    Args:
        array: Values, [...]; bool counts as 0 and 1.

    Returns:
        One number per column of `STATISTICS_COLUMNS`; NaN if undefined.
    """
    if not has_statistics(array.dtype):
        return NO_STATISTICS
    if array.size == 1:
        return number_statistics(float(array.item()))
    flat = array.ravel(order="K")  # any order of the elements
    return chunked_statistics(flat.size, lambda: _split(flat))


def statistics_rows(arrays: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Return the statistics of several arrays, [arrays, STATISTICS_COLUMNS].

    Args:
        arrays: Values, [...] each, as for `array_statistics`.
    """
    rows = np.empty((len(arrays), len(STATISTICS_COLUMNS)))
    short: dict[np.dtype[Any], list[int]] = {}
    for position, array in enumerate(arrays):
        if 1 < array.size <= _SHORT and has_statistics(array.dtype):
            short.setdefault(array.dtype, []).append(position)
        else:
            rows[position] = array_statistics(array)
    for positions in short.values():
        flat = np.concatenate([arrays[position].ravel(order="K") for position in positions])
        rows[positions] = segment_statistics(flat, [arrays[n].size for n in positions])
    return rows


def segment_statistics(flat: NDArray[Any], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the statistics of consecutive segments of an array, [segments, STATISTICS_COLUMNS].

    Args:
        flat: Real numbers or booleans, [n].
        sizes: Numbers of elements of the segments; their sum is n.
    """
    rows = np.empty((len(sizes), len(STATISTICS_COLUMNS)))
    first = begin = end = 0  # of short segments that are computed together
    for position, size in enumerate(sizes):
        if 0 < size <= _SHORT and end + size - begin <= CHUNK:
            end += size
            continue
        if first < position:
            rows[first:position] = _short_segments(flat[begin:end], sizes[first:position])
        first, begin = position, end
        end += size
        if not 0 < size <= _SHORT:
            rows[position] = array_statistics(flat[begin:end])
            first, begin = position + 1, end
    if first < len(sizes):
        rows[first:] = _short_segments(flat[begin:end], sizes[first:])
    return rows


def _short_segments(flat: NDArray[Any], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the statistics of non-empty segments that are computed together."""
    lengths = np.array(sizes)
    starts = np.cumsum(lengths) - lengths
    values = flat.astype(np.float64)
    with np.errstate(all="ignore"):
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        total, squares = np.add.reduceat(values, starts), np.add.reduceat(values * values, starts)
        absolute = np.add.reduceat(np.abs(values), starts)
        mean = np.clip(total / lengths, low, high)
        values -= np.repeat(mean, lengths)
        variance = np.add.reduceat(np.square(values, out=values), starts) / lengths
        variance[low == high] = 0.0
        magnitude = np.maximum(-low, high)
        is_sound = np.isfinite(squares) & ((magnitude == 0) | (magnitude >= SMALLEST_SQUARED))
    l2 = np.where(lengths == 1, absolute, np.sqrt(squares))
    none = np.zeros(len(sizes))
    moments = mean, np.sqrt(variance), absolute / lengths, absolute, l2
    rows = np.stack([lengths, none, none, low, high, *moments], axis=1)
    for place in np.flatnonzero(~is_sound).tolist():
        start = int(starts[place])
        rows[place] = array_statistics(flat[start : start + sizes[place]])
    return rows


def chunked_statistics(size: int, chunks: Chunks) -> tuple[float, ...]:
    """Return the statistics of a tensor in chunks, of real numbers or booleans.

    Args:
        size: Number of its elements.
        chunks: Returns the chunks.
    """
    if size == 0:
        return statistics_row(0, 0, 0)
    with np.errstate(all="ignore"):
        sums = _Sums()
        for chunk in chunks():
            sums.add(_computable(chunk))
        if not sums.are_sound():
            return _exact_statistics(size, chunks)
        mean = min(max(sums.total / size, sums.low), sums.high)
        variance = sums.squares / size - mean * mean
        if sums.low == sums.high:
            variance = 0.0
        elif variance < _CANCELLATION * sums.squares / size:
            deviation, squared_deviations = _deviations(chunks, mean)
            mean += deviation / size
            variance = (squared_deviations - deviation * deviation / size) / size
    return statistics_row(
        size,
        0,
        0,
        low=sums.low,
        high=sums.high,
        mean=mean,
        std=math.sqrt(variance),
        l1=sums.absolute,
        l2=math.sqrt(sums.squares),
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

    Without a finite element, all except the counts are NaN.
    """
    count = size - num_nan - num_inf
    abs_mean = l1 / count if count else math.nan
    return (float(size), float(num_nan), float(num_inf), low, high, mean, std, abs_mean, l1, l2)


# Fast computation ---------------------------------------------------------------------------------


class _Scratch(threading.local):
    """Scratch memory per thread; allocating it for every chunk would cost page faults."""

    def __init__(self) -> None:
        self.float64 = np.empty(CHUNK, np.float64)
        self.float32 = self.float64.view(np.float32)[:CHUNK]


_scratch = _Scratch()
_ones: Final = {np.dtype(kind): np.ones((_ROW, 1), kind) for kind in (np.float32, np.float64)}


class _Sums:
    """Bounds and sums over chunks of float32 or float64."""

    __slots__ = ("absolute", "high", "low", "squares", "total")

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.total = self.absolute = self.squares = 0.0

    def add(self, chunk: NDArray[Any]) -> None:
        """Add elements, [n]."""
        whole = chunk.size // _ROW * _ROW
        scratch = _scratch.float32 if chunk.dtype == np.float32 else _scratch.float64
        absolute = scratch[: chunk.size]
        rows = chunk[:whole].reshape(-1, 1, _ROW)
        self.squares += _total(np.matmul(rows, rows.reshape(-1, _ROW, 1)).reshape(-1))
        self.low = min(self.low, float(np.minimum.reduce(chunk)))
        self.high = max(self.high, float(np.maximum.reduce(chunk)))
        self.total += _total(np.matmul(rows, _ones[chunk.dtype]).reshape(-1))
        np.abs(chunk, out=absolute)
        rows = absolute[:whole].reshape(-1, 1, _ROW)
        self.absolute += _total(np.matmul(rows, _ones[chunk.dtype]).reshape(-1))
        if whole < chunk.size:
            rest = absolute[whole:]
            self.total += _total(chunk[whole:])
            self.absolute += _total(rest)
            self.squares += float(rest.dot(rest))

    def are_sound(self) -> bool:
        """Return whether sums are finite, and the largest square does not underflow."""
        magnitude = max(-self.low, self.high)
        return (
            math.isfinite(self.total)
            and math.isfinite(self.squares)
            and (magnitude == 0 or magnitude >= SMALLEST_SQUARED)
        )


def _total(values: NDArray[Any]) -> float:
    # Of numpy's ways to add a few hundred float32 up in float64 the one that needs the least time.
    return float(np.add.reduce(values, dtype=np.float64))


def _deviations(chunks: Chunks, mean: float) -> tuple[float, float]:
    """Return the sums of x - mean, which is 0 except for rounding errors, and of (x - mean)^2."""
    total = squares = 0.0
    for chunk in chunks():
        values = _scratch.float64[: chunk.size]
        np.subtract(chunk, mean, out=values, dtype=np.float64)
        total += float(np.add.reduce(values))
        squares += float(np.einsum("i,i->", values, values))
    return total, squares


def _split(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK]


def _computable(chunk: NDArray[Any]) -> NDArray[Any]:
    """Return the chunk as float32 if that is exact, else as float64."""
    if chunk.dtype in _ones:
        return chunk
    return chunk.astype(np.float32 if chunk.dtype.itemsize <= _SHORT_BYTES else np.float64)


# Exact computation --------------------------------------------------------------------------------


def _exact_statistics(size: int, chunks: Chunks) -> tuple[float, ...]:
    """Return the statistics of the finite elements, in float64 and several passes."""
    num_nan, num_inf, low, high = _count_and_bound(chunks)
    count = size - num_nan - num_inf
    if count == 0:
        return statistics_row(size, num_nan, num_inf)
    # Scaling prevents overflow and underflow of squares.
    scale = max(abs(low), abs(high)) or 1.0
    total = absolute = squares = 0.0
    for chunk in chunks():
        values = _finite(chunk) / scale
        total += _total(values)
        squares += float(np.einsum("i,i->", values, values))
        absolute += _total(np.abs(values, out=values))
    mean = total / count
    deviation = 0.0
    for chunk in chunks():
        values = _finite(chunk) / scale - mean
        deviation += float(np.einsum("i,i->", values, values))
    return statistics_row(
        size,
        num_nan,
        num_inf,
        low=low,
        high=high,
        mean=mean * scale,
        std=math.sqrt(deviation / count) * scale,
        l1=absolute * scale,
        l2=math.sqrt(squares) * scale,
    )


def _count_and_bound(chunks: Chunks) -> tuple[int, int, float, float]:
    """Return the counts of NaN and Inf, and the minimum and maximum of finite values."""
    num_nan = num_inf = 0
    low, high = math.inf, -math.inf
    for chunk in chunks():
        values = chunk
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            num_nan += int(np.count_nonzero(np.isnan(chunk)))
            num_inf += int(np.count_nonzero(np.isinf(chunk)))
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
