"""Copies tensors to host memory: small ones together, large ones into reusable buffers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from hook_layer.capture.captured_step import Snapshot
from hook_layer.pytorch.host_copy import HostCopy, new_buffer
from hook_layer.pytorch.values import SAVED_AS_FLOAT32, WHOLE, plain

__all__ = [
    "PLAIN_TYPES",
    "SMALL_BYTES",
    "BufferPool",
    "FlatCopy",
    "LargeCopy",
    "copied",
    "copied_together",
    "is_small",
    "storable",
]

_Kind: TypeAlias = "tuple[torch.Size, torch.dtype, bool]"
"""Shape and type of a buffer, and whether it is pinned."""
SMALL_BYTES: Final = 256 << 10
"""Smaller tensors are copied together, which is faster than one buffer for each."""
PLAIN_TYPES: Final = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
"""Types of real numbers that numpy has."""


class BufferPool:
    """Buffers for copies, reused once their content is written.

    Allocating memory for each copy would double its cost, through page faults. The least recently
    used buffers are released first.

    Args:
        max_bytes: Maximum size of unused buffers.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        # Written copies; each can release its buffer. The most recently used type is at the end.
        self._free: OrderedDict[_Kind, list[HostCopy]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, shape: torch.Size, dtype: torch.dtype, *, pinned: bool) -> Tensor:
        """Return a buffer on the host, with any content."""
        kind = shape, dtype, pinned
        with self._lock:
            if kind in self._free:
                return self._pop(kind).taken()
        return new_buffer(shape, dtype, pinned=pinned)

    def give_back(self, copy: HostCopy) -> None:
        """Accept the buffer of a copy that has arrived and is no longer used."""
        buffer, dropped = copy.buffer, []
        if not SMALL_BYTES <= buffer.nbytes <= self._max_bytes:
            return
        kind = buffer.shape, buffer.dtype, copy.is_pinned
        with self._lock:
            self._free.setdefault(kind, []).append(copy)
            self._free.move_to_end(kind)
            self._bytes += buffer.nbytes
            while self._bytes > self._max_bytes:
                dropped.append(self._pop(next(iter(self._free))))

    def _pop(self, kind: _Kind) -> HostCopy:
        copies = self._free[kind]
        copy = copies.pop()
        if not copies:
            del self._free[kind]
        self._bytes -= copy.buffer.nbytes
        return copy


class LargeCopy:
    """A copy on the host in a buffer of a pool, possibly still in transfer from a device."""

    __slots__ = ("_copy", "_pool", "nbytes")

    def __init__(self, value: Tensor, pool: BufferPool) -> None:
        self._pool = pool
        buffer = pool.take(value.shape, value.dtype, pinned=value.is_cuda)
        self._copy: HostCopy | None = HostCopy(value, buffer)
        self.nbytes = buffer.nbytes

    def array(self) -> NDArray[Any]:
        """Return the elements; waits for the device."""
        if self._copy is None:
            raise RuntimeError("the snapshot was released")
        return self._copy.array()

    def release(self) -> None:
        """Give the buffer back."""
        copy, self._copy = self._copy, None
        # A dropped step must not wait for the device: torch frees the memory after the copy.
        with suppress(RuntimeError):  # the device failed
            if copy is not None and copy.has_arrived():
                self._pool.give_back(copy)


class FlatCopy:
    """Copies of several small tensors, concatenated in one buffer.

    Args:
        tensors: Dense tensors of one device and type, all of torch's own class.

    Attributes:
        nbytes: Bytes of the copies.
    """

    __slots__ = ("_array", "_copy", "nbytes")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._array: NDArray[Any] | None = None
        with torch.no_grad():
            if len(tensors) == 1:  # flattening one contiguous tensor makes no copy
                flat = tensors[0].clone(memory_format=torch.contiguous_format).view(-1)
            else:
                flat = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
        self.nbytes = flat.nbytes
        self._copy = HostCopy(flat) if flat.is_cuda else HostCopy.of_host(flat.cpu())

    def array(self) -> NDArray[Any]:
        """Return the elements, [size]; waits for the device."""
        if self._array is None:
            self._array = self._copy.array()
        return self._array

    def segments(self, shapes: Sequence[torch.Size]) -> list[Snapshot]:
        """Return the copy of each tensor."""
        sizes = [shape.numel() for shape in shapes]
        bytes_of_one = self.nbytes // (sum(sizes) or 1)
        places = zip(accumulate(sizes, initial=0), sizes, shapes, strict=False)
        return [_Segment(self, start, size, shape, bytes_of_one) for start, size, shape in places]


class _Segment:
    """The copy of one of several small tensors."""

    __slots__ = ("_flat", "_shape", "_start", "_stop", "nbytes")

    def __init__(
        self, flat: FlatCopy, start: int, size: int, shape: torch.Size, bytes_of_one: int
    ) -> None:
        self._flat = flat
        self._start = start
        self._stop = start + size
        self._shape = shape
        self.nbytes = size * bytes_of_one

    def array(self) -> NDArray[Any]:
        return self._flat.array()[self._start : self._stop].reshape(self._shape)

    def release(self) -> None:
        """Do nothing: the buffer is not reused."""


def copied(tensors: Sequence[Tensor], pool: BufferPool) -> list[Snapshot]:
    """Copy tensors that `storable` returned to the host; large ones use buffers of a pool."""
    small = [tensor for tensor in tensors if is_small(tensor)]
    together = iter(copied_together(small))
    return [next(together) if is_small(t) else LargeCopy(t.detach(), pool) for t in tensors]


def copied_together(tensors: Sequence[Tensor]) -> list[Snapshot]:
    """Copy small tensors to the host, with one call per device and type."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(position)
    copies: dict[int, Snapshot] = {}
    for positions in groups.values():
        group = [tensors[position] for position in positions]
        segments = FlatCopy(group).segments([tensor.shape for tensor in group])
        copies.update(zip(positions, segments, strict=True))
    return [copies[position] for position in range(len(tensors))]


def is_small(tensor: Tensor) -> bool:
    """Return whether a tensor is copied together with others."""
    if type(tensor) not in WHOLE or tensor.layout is not torch.strided:
        return False
    return tensor.nbytes < SMALL_BYTES


def storable(tensor: Tensor) -> Tensor:
    """Return a tensor in stored form: dense, of a numpy type, without a copy if possible."""
    is_dense = type(tensor) in WHOLE and tensor.layout is torch.strided
    if is_dense and tensor.dtype in PLAIN_TYPES and not tensor.is_neg():
        return tensor
    value = plain(tensor)
    return value.to(torch.float32) if value.dtype in SAVED_AS_FLOAT32 else value
