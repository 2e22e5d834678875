"""Triton kernels; import this module only where Triton is installed, as with torch on Linux."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["summarise"]


@triton.jit  # type: ignore[untyped-decorator]
def summarise(base, pieces, results, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute partial statistics of pieces of tensors, in one read per element.

    Sums are float64. Deviations are relative to the mean of the first block with finite elements,
    which avoids cancellation in the std of float32.

    Args:
        base: Base address and element type of the pieces.
        pieces: Offset from `base` and number of elements of each piece, [P, 2], int64.
        results: Output for `hook_layer.pytorch.device_statistics`, [P, 10], float64.
        BLOCK: Number of elements per block.
    """
    number = tl.program_id(0).to(tl.int64)
    values = base + tl.load(pieces + 2 * number)
    length = tl.load(pieces + 2 * number + 1)
    columns = tl.arange(0, BLOCK)
    pivot = tl.full((), 0.0, tl.float64)
    num_known = tl.full((), 0, tl.int32)
    for start in range(0, length, BLOCK):
        if num_known == 0:
            ahead = start + columns < length
            first = tl.load(values + start + columns, mask=ahead, other=0.0).to(tl.float64)
            known = ahead & (first - first == 0.0)
            num_known = tl.sum(known.to(tl.int32), 0)
            pivot = tl.sum(tl.where(known, first, 0.0), 0) / tl.maximum(num_known, 1)
    count = tl.zeros([BLOCK], tl.int32)
    num_nan = tl.zeros([BLOCK], tl.int32)
    low = tl.full([BLOCK], float("inf"), tl.float64)
    high = tl.full([BLOCK], float("-inf"), tl.float64)
    moved = tl.zeros([BLOCK], tl.float64)
    absolute = tl.zeros([BLOCK], tl.float64)
    squared = tl.zeros([BLOCK], tl.float64)
    for start in range(0, length, BLOCK):
        inside = start + columns < length
        x = tl.load(values + start + columns, mask=inside, other=0.0).to(tl.float64)
        finite = inside & (x - x == 0.0)
        away = tl.where(finite, x - pivot, 0.0)
        count += finite.to(tl.int32)
        num_nan += (inside & (x != x)).to(tl.int32)  # noqa: PLR0124 - only NaN is not itself
        low = tl.minimum(low, tl.where(finite, x, float("inf")))
        high = tl.maximum(high, tl.where(finite, x, float("-inf")))
        moved += away
        absolute += tl.where(finite, tl.abs(x), 0.0)
        squared += away * away
    row = results + 10 * number
    num_finite = tl.sum(count, 0).to(tl.float64)
    tl.store(row, num_finite)
    tl.store(row + 1, tl.sum(num_nan, 0).to(tl.float64))
    tl.store(row + 2, tl.min(low, 0))
    tl.store(row + 3, tl.max(high, 0))
    tl.store(row + 4, pivot * 0.0 + 1.0)
    tl.store(row + 5, num_finite * pivot)
    tl.store(row + 6, tl.sum(moved, 0))
    tl.store(row + 7, pivot)
    tl.store(row + 8, tl.sum(absolute, 0))
    tl.store(row + 9, tl.sum(squared, 0))
