"""One Triton kernel that computes statistics of many tensors, in one read per element.

Import this module only where Triton is installed, as with torch on Linux.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Final

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["launched"]

_BLOCK: Final = 1024  # elements per block; more exceed a multiprocessor's registers
_WARPS: Final = 4
_MOST_PIECES: Final = 1024  # limit for all tensors together, plus one per tensor
_FEW: Final = 256  # limit on tensors per cached table: 512 tables of 5,000 would use 122 MB
_MAX_TABLES: Final = 512  # cached tables of few tensors, about 16 KiB each on a device
_MAX_LARGE_TABLES: Final = 16


def launched(tensors: Sequence[Tensor], stream: torch.cuda.Stream) -> tuple[Tensor, list[int]]:
    """Launch the kernel; arguments and results are those of `device_kernels.partial_results`.

    Raises:
        TypeError: The kernel cannot run on a device.
    """
    if not isinstance(_summarise, triton.JITFunction):
        raise TypeError("TRITON_INTERPRET is set: its interpreter cannot read a device's memory")
    first = tensors[0]
    device, address, item = first.device, first.data_ptr(), first.element_size()
    sizes = tuple(tensor.numel() for tensor in tensors)
    away = tuple((tensor.data_ptr() - address) // item for tensor in tensors)
    is_current = device.index == torch.cuda.current_device()
    with nullcontext() if is_current else torch.cuda.device(device):
        table = _table if len(tensors) <= _FEW else _large_table
        pieces, num_pieces = table(device, stream.cuda_stream, sizes, away)
        results = torch.empty((len(pieces), 10), dtype=torch.float64, device=device)
        _summarise[(len(pieces),)](first, pieces, results, BLOCK=_BLOCK, num_warps=_WARPS)
    return results, num_pieces


def _new_table(
    device: torch.device, _stream: int, sizes: tuple[int, ...], away: tuple[int, ...]
) -> tuple[Tensor, list[int]]:
    """Return the pieces of tensors on the device; cached, as training mostly reuses addresses.

    A table belongs to the stream that copies it to the device. In that stream it is available, and
    its memory is reused only after the kernels that read it.

    Returns:
        Offset from the first tensor and number of elements of each piece, [P, 2], and the number of
        pieces of each tensor.
    """
    owners, offsets, lengths, num_pieces = _pieces(sizes)
    table = np.stack([np.array(away, np.int64)[owners] + offsets, lengths], axis=1)
    with torch.inference_mode(mode=False):
        return torch.from_numpy(table).pin_memory().to(device, non_blocking=True), num_pieces


_table = lru_cache(maxsize=_MAX_TABLES)(_new_table)
_large_table = lru_cache(maxsize=_MAX_LARGE_TABLES)(_new_table)


@lru_cache(maxsize=64)
def _pieces(
    sizes: tuple[int, ...],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Divide tensors into pieces of similar size.

    Returns:
        For each piece, [P], its tensor's index, first element and number of elements; and the
        number of pieces of each tensor.
    """
    most = max(-(-sum(sizes) // (_MOST_PIECES * _BLOCK)), 4) * _BLOCK
    num_pieces = [-(-size // most) for size in sizes]
    owners: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), num_pieces)
    begins: NDArray[np.int64] = np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    offsets: NDArray[np.int64] = (np.arange(len(owners), dtype=np.int64) - begins) * most
    lengths: NDArray[np.int64] = np.minimum(np.array(sizes)[owners] - offsets, most)
    return owners, offsets, lengths, num_pieces


@triton.jit  # type: ignore[untyped-decorator]
def _summarise(base, pieces, results, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute partial statistics of pieces of tensors, in one read per element.

    Sums are float64. Deviations are relative to the mean of the first block with finite elements,
    which avoids cancellation in the std of float32.

    Args:
        base: Base address and element type of the pieces.
        pieces: Offset from `base` and number of elements of each piece, [P, 2], int64.
        results: Output, as `hook_layer.pytorch.device_kernels` defines it, [P, 10], float64.
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
