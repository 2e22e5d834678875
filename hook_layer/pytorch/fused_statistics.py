"""Computes statistics of many tensors on a CUDA device with one kernel, in one read per element."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["fused_partials"]

logger = logging.getLogger("stepwatch")

_BLOCK: Final = 1024  # elements per block; more exceed a multiprocessor's registers
_WARPS: Final = 4
_MOST_PIECES: Final = 1024  # limit for all tensors together, plus one per tensor
_FEW: Final = 256  # limit on tensors per cached table: 512 tables of 5,000 would use 122 MB
_MAX_TABLES: Final = 512  # cached tables of few tensors, about 16 KiB each on a device
_MAX_LARGE_TABLES: Final = 16
_TYPES: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_OF_DEVICES: Final = "CUDA error", "HIP error"
"""Start of messages of errors that any other use of the device would raise, too."""


class _Fusion:
    """Whether this process can use kernels, which need a C compiler."""

    is_broken = False


def fused_partials(
    tensors: Sequence[Tensor], stream: torch.cuda.Stream | None
) -> tuple[Tensor, list[int]] | None:
    """Return partial results of tensors from the kernel, if it supports them.

    Args:
        tensors: Flat tensors [size] of one device and type, none empty, none a lazy negative.
        stream: The device's current CUDA stream, if it has one.

    Returns:
        The partial results of pieces of the tensors, [P, 10], float64, and the number of pieces of
        each tensor; None if the kernel cannot be used.
    """
    first = tensors[0]
    if stream is None or first.dtype not in _TYPES or _Fusion.is_broken:
        return None
    if not all(map(_is_readable, tensors)):
        return None
    try:
        return _launched(tensors, stream)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if any(text in str(error) for text in _OF_DEVICES):
            raise
        # Compilation fails, for any reason: fall back to the other implementation.
        _Fusion.is_broken = True
        logger.warning(
            "statistics are slower than necessary, because Triton does not work here (%s: %.200s)",
            type(error).__name__,
            error,
        )
        return None


def _is_readable(tensor: Tensor) -> bool:
    """Return whether the elements are at the tensor's address; not so for subclasses."""
    return type(tensor) is Tensor and tensor.is_contiguous() and tensor.data_ptr() != 0


def _launched(tensors: Sequence[Tensor], stream: torch.cuda.Stream) -> tuple[Tensor, list[int]]:
    kernel = _kernel()
    first = tensors[0]
    device, address, item = first.device, first.data_ptr(), first.element_size()
    sizes = tuple(tensor.numel() for tensor in tensors)
    away = tuple((tensor.data_ptr() - address) // item for tensor in tensors)
    is_current = device.index == torch.cuda.current_device()
    with nullcontext() if is_current else torch.cuda.device(device):
        table = _table if len(tensors) <= _FEW else _large_table
        pieces, num_pieces = table(device, stream.cuda_stream, sizes, away)
        results = torch.empty((len(pieces), 10), dtype=torch.float64, device=device)
        kernel[(len(pieces),)](first, pieces, results, BLOCK=_BLOCK, num_warps=_WARPS)
    return results, num_pieces


def _new_table(
    device: torch.device, _stream: int, sizes: tuple[int, ...], away: tuple[int, ...]
) -> tuple[Tensor, list[int]]:
    """Return the pieces of tensors on the device; cached, as training mostly reuses addresses.

    A table belongs to the stream that copies it to the device. In that stream it is available, and
    its memory is reused only after the kernels that read it.

    Args:
        device: Device of the tensors.
        sizes: Their numbers of elements.
        away: Offset of each tensor from the first one, in elements.

    Returns:
        Start and number of elements of each piece, [P, 2], and the number of pieces of each tensor.
    """
    owners, offsets, lengths, num_pieces = _pieces(sizes)
    table = np.stack([np.array(away, np.int64)[owners] + offsets, lengths], axis=1)
    with torch.inference_mode(mode=False):
        return torch.from_numpy(table).pin_memory().to(device, non_blocking=True), num_pieces


_table = lru_cache(maxsize=_MAX_TABLES)(_new_table)
_large_table = lru_cache(maxsize=_MAX_LARGE_TABLES)(_new_table)


@cache
def _kernel() -> Any:
    from triton import JITFunction  # noqa: PLC0415 - not installed everywhere, and slow to import

    from hook_layer.pytorch.triton_kernels import summarise  # noqa: PLC0415

    if not isinstance(summarise, JITFunction):
        raise TypeError("TRITON_INTERPRET is set: its interpreter cannot read a device's memory")
    return summarise


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
