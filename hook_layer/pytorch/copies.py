"""Copies of tensors in host memory, for which only a reader waits.

Small tensors are copied together, large ones into reusable buffers.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, compress
from typing import Any, Final, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from hook_layer.capture.captured_step import Snapshot
from hook_layer.pytorch.tensor_elements import WHOLE

__all__ = [
    "SMALL_BYTES",
    "BufferPool",
    "FlatCopy",
    "HostCopy",
    "LargeCopy",
    "copied",
    "copied_together",
    "is_small",
    "not_disturbing_recordings",
]

_Kind: TypeAlias = "tuple[torch.Size, torch.dtype, bool]"
"""Shape and type of a buffer, and whether it is pinned."""
SMALL_BYTES: Final = 256 << 10
"""Smaller tensors are copied together, which is faster than one buffer for each."""
_RELAXED: Final = 2
"""`cudaStreamCaptureModeRelaxed`, and HIP's equivalent."""


class HostCopy:
    """A copy of a tensor, possibly still in transfer from a device.

    Args:
        value: A tensor detached from autograd; may be changed or freed afterwards.
        buffer: Target of the copy, on the host; pinned for CUDA tensors.
    """

    __slots__ = ("_event", "buffer")

    def __init__(self, value: Tensor, buffer: Tensor | None = None) -> None:
        self._event: Any = None
        is_cuda = value.is_cuda
        if buffer is None:
            buffer = _new_buffer(value.shape, value.dtype, pinned=is_cuda)
        self.buffer = buffer.copy_(value, non_blocking=is_cuda)
        if is_cuda:
            # A non-blocking event would busy-wait on a core that a data loader may need.
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(value.device))

    @classmethod
    def of(cls, value: Tensor) -> HostCopy:
        """Return a copy of a new tensor, which nobody else changes: without copying on the CPU."""
        if value.is_cuda:
            return cls(value)
        known = cls.__new__(cls)
        known._event, known.buffer = None, value.cpu()  # noqa: SLF001 - of this class
        return known

    def __del__(self) -> None:
        # torch asks CUDA before it reuses pinned memory, and aborts the process if CUDA returns an
        # error, as it always does after a device failure.
        if self._event is None:
            return
        with not_disturbing_recordings():
            try:
                self._event.query()
            except Exception:  # noqa: BLE001 - whatever the error
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.buffer))
            del self._event, self.buffer

    @property
    def is_pinned(self) -> bool:
        """Whether the buffer is pinned."""
        return self._event is not None

    def has_arrived(self) -> bool:
        """Return whether the copy has arrived; raise RuntimeError if the device failed."""
        if self._event is None:
            return True
        with not_disturbing_recordings():
            return bool(self._event.query())

    def array(self) -> NDArray[Any]:
        """Return the elements as a view of the buffer; waits for the device."""
        if self._event is not None:
            with not_disturbing_recordings():  # another thread may capture a CUDA graph meanwhile
                self._event.synchronize()
        array: NDArray[Any] = self.buffer.numpy()
        return array

    def taken(self) -> Tensor:
        """Return the buffer of an arrived copy for reuse; the copy is invalid afterwards."""
        self._event = None
        return self.buffer


class BufferPool:
    """Buffers for copies, reused once their content is written.

    Allocating memory for each copy would double its cost, through page faults. The least recently
    used buffers are released first, once the unused ones have more than `max_bytes`.
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
        return _new_buffer(shape, dtype, pinned=pinned)

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
    """Copies of several small dense tensors of one device and type, in one buffer."""

    __slots__ = ("_array", "_copy", "nbytes")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._array: NDArray[Any] | None = None
        with torch.no_grad():
            if len(tensors) == 1:  # flattening one contiguous tensor makes no copy
                flat = tensors[0].clone(memory_format=torch.contiguous_format).view(-1)
            else:
                flat = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
        self.nbytes = flat.nbytes
        self._copy = HostCopy.of(flat)

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
        return [_Segment(self, start, shape, size * bytes_of_one) for start, size, shape in places]


@dataclass(slots=True, eq=False)
class _Segment:
    """The copy of one of several small tensors."""

    flat: FlatCopy
    start: int
    shape: torch.Size
    nbytes: int

    def array(self) -> NDArray[Any]:
        stop = self.start + self.shape.numel()
        return self.flat.array()[self.start : stop].reshape(self.shape)

    def release(self) -> None:
        """Do nothing: the buffer is not reused."""


def copied(tensors: Sequence[Tensor], pool: BufferPool) -> list[Snapshot]:
    """Copy tensors that `storable` returned to the host; large ones use buffers of a pool."""
    are_small = [is_small(tensor) for tensor in tensors]
    small = iter(copied_together([*compress(tensors, are_small)]))
    pairs = zip(tensors, are_small, strict=True)
    return [next(small) if is_one else LargeCopy(t.detach(), pool) for t, is_one in pairs]


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


class not_disturbing_recordings:  # noqa: N801 - as `contextlib.suppress`
    """Let this thread use CUDA while it or another thread captures a CUDA graph.

    In the default capture mode, CUDA fails the capture if any thread waits for an event, allocates
    memory or frees memory, unless that thread has switched to the relaxed mode.
    """

    __slots__ = ("_exchange", "_mode")

    def __enter__(self) -> None:
        self._exchange = _exchange_of_modes()
        if self._exchange is not None:
            self._mode = ctypes.c_int(_RELAXED)
            self._exchange(ctypes.byref(self._mode))

    def __exit__(self, *_: object) -> None:
        if self._exchange is not None:
            self._exchange(ctypes.byref(self._mode))  # it holds the previous mode


def _new_buffer(shape: torch.Size, dtype: torch.dtype, *, pinned: bool) -> Tensor:
    """Allocate uninitialized host memory."""
    # A buffer from inference mode would not be writable in training, and a script may set a default
    # device. Leaving the mode takes longer than checking it.
    is_inference = torch.is_inference_mode_enabled()
    with torch.inference_mode(mode=False) if is_inference else nullcontext():
        return torch.empty(shape, dtype=dtype, pin_memory=pinned, device="cpu")


@cache
def _exchange_of_modes() -> Callable[..., int] | None:
    """Return `cudaThreadExchangeStreamCaptureMode` of torch's library, if found."""
    version = torch.version.cuda
    if version is None:
        names, function = ["libamdhip64.so"], "hipThreadExchangeStreamCaptureMode"
    else:
        major = version.partition(".")[0]
        names = [f"libcudart.so.{major}", f"libcudart.so.{major}.0", f"cudart64_{major}.dll"]
        function = "cudaThreadExchangeStreamCaptureMode"
    for name in names:
        try:
            # Not CDLL: that would release the GIL to other threads, and wait to get it back.
            found: Callable[..., int] = getattr(ctypes.PyDLL(name), function)
        except (OSError, AttributeError):
            continue
        return found
    return None
