"""The statistics of many tensors on a CUDA device by one kernel, which reads every element once."""

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

_BLOCK: Final = 1024  # elements; more of them would not fit into a multiprocessor's registers
_WARPS: Final = 4
_MOST_PIECES: Final = 1024  # of all tensors together, and one more for each
_FEW: Final = 256  # tensors: 512 tables of 5,000 would take up 122 MB
_MAX_TABLES: Final = 512  # of few tensors, of some 16 KiB on a device
_MAX_LARGE_TABLES: Final = 16
_TYPES: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_OF_DEVICES: Final = "CUDA error", "HIP error"
"""What errors say that any other way of using the device would have met, too."""


class _Fusion:
    """Whether kernels can be used in this process: they are compiled, with a C compiler."""

    is_broken = False


def fused_partials(
    tensors: Sequence[Tensor], stream: torch.cuda.Stream | None
) -> tuple[Tensor, list[int]] | None:
    """Return partial results of tensors by the kernel, if it can be used for them.

    Args:
        tensors: Flat tensors [size] of one device and type, none empty, none a lazy negative.
        stream: The device's current stream of CUDA, if it has such.

    Returns:
        The partial results of pieces of the tensors, [P, 10], float64, and of how many pieces each
        tensor consists; None: another way must do.
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
        # Whatever it lacks to compile: there is another way.
        _Fusion.is_broken = True
        logger.warning(
            "statistics are slower than necessary, because Triton does not work here (%s: %.200s)",
            type(error).__name__,
            error,
        )
        return None


def _is_readable(tensor: Tensor) -> bool:
    """Return whether the elements are where the tensor's address says; not those of a subclass."""
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
    """Return pieces of tensors on the device; training repeats itself, mostly at equal addresses.

    A table belongs to the stream in which it is copied to the device: in that it is there, and its
    memory is used again only behind the kernels that read it.

    Args:
        device: Where the tensors are.
        sizes: Their numbers of elements.
        away: How many elements each begins behind the first of them.

    Returns:
        Of each piece where it begins and its number of elements, [P, 2], and of how many pieces
        each tensor consists.
    """
    owners, offsets, lengths, num_pieces = _pieces(sizes)
    table = np.stack([np.array(away, np.int64)[owners] + offsets, lengths], axis=1)
    with torch.inference_mode(mode=False):
        return torch.from_numpy(table).pin_memory().to(device, non_blocking=True), num_pieces


_table = lru_cache(maxsize=_MAX_TABLES)(_new_table)
_large_table = lru_cache(maxsize=_MAX_LARGE_TABLES)(_new_table)


@cache
def _kernel() -> Any:
    from triton import JITFunction  # noqa: PLC0415 - is not everywhere, and takes long to import

    from hook_layer.pytorch.triton_kernels import summarise  # noqa: PLC0415

    if not isinstance(summarise, JITFunction):
        raise TypeError("TRITON_INTERPRET is set: its interpreter cannot read a device's memory")
    return summarise


@lru_cache(maxsize=64)
def _pieces(
    sizes: tuple[int, ...],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Divide tensors into pieces of about the same size.

    Returns:
        Of each piece the number of its tensor, its first element and its number of elements, [P];
        and of each tensor the number of its pieces.
    """
    most = max(-(-sum(sizes) // (_MOST_PIECES * _BLOCK)), 4) * _BLOCK
    num_pieces = [-(-size // most) for size in sizes]
    owners: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), num_pieces)
    begins: NDArray[np.int64] = np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    offsets: NDArray[np.int64] = (np.arange(len(owners), dtype=np.int64) - begins) * most
    lengths: NDArray[np.int64] = np.minimum(np.array(sizes)[owners] - offsets, most)
    return owners, offsets, lengths, num_pieces
