"""Copies, reductions and statistics of torch tensors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from hook_layer.capture import Snapshot, StatisticsBatch
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.host_copy import HostCopy, new_buffer
from hook_layer.pytorch.statistics import torch_statistics
from hook_layer.pytorch.values import SAVED_AS_FLOAT32, host_array, plain
from hook_layer.reductions import Reduction

__all__ = ["BufferPool", "TorchBackend", "is_capturable"]

_Kind: TypeAlias = "tuple[torch.Size, torch.dtype, bool]"
"""Shape and type of a buffer, and whether it is pinned."""
_POOLED_BYTES: Final = 64 << 10  # smaller copies are quicker made than their buffers kept
_NAMES: Final[dict[torch.dtype, str]] = {}
_METHODS: Final = {"variance": "var"}
_OF_SPREAD: Final = ("std", "variance")
_OF_ANY_NUMBERS: Final = ("min", "max", "sum", "prod")
_NORMS: Final = {"l1": 1, "l2": 2}


class BufferPool:
    """Buffers that copies are made into, used again once they are written.

    New memory for every copy would cost as much again as the copy, in page faults. Where shapes
    change, those that were not used for the longest time are let go.

    Args:
        max_bytes: How much may lie unused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        # Written copies: who lets go of one knows how. The kind used last is at the end.
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
        """Take the buffer of a copy that has arrived, and that nobody uses any more."""
        buffer, dropped = copy.buffer, []
        if not _POOLED_BYTES <= buffer.nbytes <= self._max_bytes:
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


class _LargeSnapshot:
    """A copy on the host, possibly still on its way from a device."""

    __slots__ = ("_copy", "_pool", "nbytes")

    def __init__(self, value: Tensor, pool: BufferPool) -> None:
        self._pool = pool
        buffer = pool.take(value.shape, value.dtype, pinned=value.is_cuda)
        self._copy: HostCopy | None = HostCopy(value, buffer)
        self.nbytes = buffer.nbytes

    def array(self) -> NDArray[Any]:
        if self._copy is None:
            raise RuntimeError("the snapshot was released")
        return self._copy.array()

    def release(self) -> None:
        copy, self._copy = self._copy, None
        # Anyone who drops a step must not wait for the device: torch frees memory behind the copy.
        with suppress(RuntimeError):  # a device that failed
            if copy is not None and copy.has_arrived():
                self._pool.give_back(copy)


class _SmallSnapshot:
    """A copy of a few elements; until it is read it costs one call."""

    __slots__ = ("_copy", "nbytes")

    def __init__(self, value: Tensor) -> None:
        self._copy = value.clone(memory_format=torch.contiguous_format)
        self.nbytes = self._copy.nbytes

    def array(self) -> NDArray[Any]:
        return host_array(self._copy)

    def release(self) -> None:
        """Nothing is used again."""


class TorchBackend:
    """Captures torch tensors.

    Args:
        pool: Where the memory of copies comes from.
    """

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._batches = DeviceBatches()

    def describe(self, value: Tensor) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape, e.g. `("bfloat16", (8, 3))`."""
        dtype = value.dtype
        name = _NAMES.get(dtype) or _NAMES.setdefault(dtype, str(dtype).removeprefix("torch."))
        return name, tuple(map(int, value.shape))

    def statistics(
        self, values: Sequence[Tensor], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Compute the statistics of several tensors, or leave them to the writer."""
        return torch_statistics(values, copies, self._batches)

    def send_statistics(self) -> bool:
        """Send what devices computed to the host, in one copy; it waited there for others.

        Returns:
            False if a CUDA graph that is being recorded makes that impossible: they are lost.
        """
        return self._batches.send()

    def forget_statistics(self) -> None:
        """Release unreferenced results of devices."""
        self._batches.forget()

    def snapshot(self, value: Tensor, rows: int | None = None) -> Snapshot:
        """Copy a tensor to the host, in C order; bfloat16 and 8-bit floats as float32."""
        stored = _storable(value if rows is None else plain(value)[:rows])
        if stored.is_cpu and stored.nbytes < _POOLED_BYTES:
            return _SmallSnapshot(stored)
        return _LargeSnapshot(stored, self._pool)

    def reduce(self, value: Tensor, reduction: Reduction) -> Snapshot:
        """Reduce a tensor by torch's definitions (std and variance divide by n - 1)."""
        name, absolute = reduction
        with torch.no_grad():
            values = _storable(value)
            if not (values.is_floating_point() or values.is_complex() or name in _OF_ANY_NUMBERS):
                values = values.double()
            if absolute and values.dtype != torch.bool:
                values = values.abs()
            return _LargeSnapshot(_reduced(values, name), self._pool)


def _reduced(values: Tensor, name: str) -> Tensor:
    reduced: Tensor
    if name in _NORMS:
        reduced = torch.linalg.vector_norm(values, _NORMS[name])
    elif name == "median":
        # As numpy does, the mean of both middle values; torch's own median is the lower one.
        reduced = values.median() / 2 - values.neg().median() / 2
    elif name in _OF_SPREAD and values.numel() == 1:  # torch warns at every one
        reduced = torch.full_like(values, torch.nan).reshape(())
    else:
        reduced = getattr(values, _METHODS.get(name, name))()
    return reduced


def is_capturable(tensor: Tensor) -> bool:
    """Return whether a tensor has elements that can be read.

    Parameters of lazy modules have none yet, meta and fake tensors never; those within a transform
    of torch.func belong to the transform. Nested ones, which torch's own layers of attention make
    of padded ones in evaluation, have rows of several lengths.
    """
    return not (
        tensor.is_meta
        or tensor.is_nested
        or is_lazy(tensor)
        or isinstance(tensor, FakeTensor)
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001 - no public way
    )


def _storable(tensor: Tensor) -> Tensor:
    value = plain(tensor)
    return value.to(torch.float32) if value.dtype in SAVED_AS_FLOAT32 else value
