"""Asynchronous copies of tensors to host memory: only a reader waits for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["HostCopy", "new_buffer", "not_disturbing_recordings"]

_RELAXED: Final = 2
"""`cudaStreamCaptureModeRelaxed`, and HIP's equivalent."""


def new_buffer(shape: torch.Size, dtype: torch.dtype, *, pinned: bool) -> Tensor:
    """Allocate uninitialized host memory."""
    # A buffer from inference mode would not be writable in training, and a script may set a default
    # device. Leaving the mode takes longer than checking it.
    is_inference = torch.is_inference_mode_enabled()
    with torch.inference_mode(mode=False) if is_inference else nullcontext():
        return torch.empty(shape, dtype=dtype, pin_memory=pinned, device="cpu")


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


class HostCopy:
    """A copy of a tensor, possibly still in transfer from a device.

    Args:
        value: A tensor detached from autograd; may be changed or freed afterwards.
        buffer: Target of the copy, from `new_buffer`; pinned for CUDA tensors.
    """

    __slots__ = ("_event", "buffer")

    def __init__(self, value: Tensor, buffer: Tensor | None = None) -> None:
        self._event: Any = None
        is_cuda = value.is_cuda
        if buffer is None:
            buffer = new_buffer(value.shape, value.dtype, pinned=is_cuda)
        self.buffer = buffer.copy_(value, non_blocking=is_cuda)
        if is_cuda:
            # A non-blocking event would busy-wait on a core that a data loader may need.
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(value.device))

    @classmethod
    def of_host(cls, buffer: Tensor) -> HostCopy:
        """Return a copy that is already in host memory."""
        known = cls.__new__(cls)
        known._event = None  # noqa: SLF001 - of this class
        known.buffer = buffer
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
        """Return whether the copy has arrived, without waiting.

        Raises:
            RuntimeError: The device failed.
        """
        if self._event is None:
            return True
        with not_disturbing_recordings():
            return bool(self._event.query())

    def wait(self) -> None:
        """Wait until the copy has arrived; another thread may capture a CUDA graph meanwhile."""
        if self._event is not None:
            with not_disturbing_recordings():
                self._event.synchronize()

    def array(self) -> NDArray[Any]:
        """Return the elements as a view of the buffer; waits for the device."""
        self.wait()
        array: NDArray[Any] = self.buffer.numpy()
        return array

    def taken(self) -> Tensor:
        """Return the buffer of an arrived copy for reuse; the copy is invalid afterwards."""
        self._event = None
        return self.buffer
