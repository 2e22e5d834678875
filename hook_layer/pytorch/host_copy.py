"""Copies of tensors in the host's memory, for which nobody waits until they are read."""

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
"""`cudaStreamCaptureModeRelaxed`, and HIP's."""


def new_buffer(shape: torch.Size, dtype: torch.dtype, *, pinned: bool) -> Tensor:
    """Return memory of the host, with any content."""
    # A buffer made in inference mode could not be written to in training, and torch has a
    # default device that a script may set. To leave that mode takes longer than to look.
    is_inference = torch.is_inference_mode_enabled()
    with torch.inference_mode(mode=False) if is_inference else nullcontext():
        return torch.empty(shape, dtype=dtype, pin_memory=pinned, device="cpu")


class not_disturbing_recordings:  # noqa: N801 - as `contextlib.suppress`
    """Let this thread use CUDA without making fail what it or another one records.

    While a thread records a graph, in the mode that is the default, CUDA takes it for an error of
    the recording if any thread waits for an event, or allocates memory, or gives memory back,
    unless that thread says that it knows.
    """

    __slots__ = ("_exchange", "_mode")

    def __enter__(self) -> None:
        self._exchange = _exchange_of_modes()
        if self._exchange is not None:
            self._mode = ctypes.c_int(_RELAXED)
            self._exchange(ctypes.byref(self._mode))

    def __exit__(self, *_: object) -> None:
        if self._exchange is not None:
            self._exchange(ctypes.byref(self._mode))  # it holds what was there before


@cache
def _exchange_of_modes() -> Callable[..., int] | None:
    """Return `cudaThreadExchangeStreamCaptureMode` of the library that torch uses, if found."""
    version = torch.version.cuda
    if version is None:
        names, function = ["libamdhip64.so"], "hipThreadExchangeStreamCaptureMode"
    else:
        major = version.partition(".")[0]
        names = [f"libcudart.so.{major}", f"libcudart.so.{major}.0", f"cudart64_{major}.dll"]
        function = "cudaThreadExchangeStreamCaptureMode"
    for name in names:
        try:
            # Not CDLL: it would hand the interpreter to other threads, and wait to get it back.
            found: Callable[..., int] = getattr(ctypes.PyDLL(name), function)
        except (OSError, AttributeError):
            continue
        return found
    return None


class HostCopy:
    """A copy of a tensor, possibly still on its way from a device.

    Args:
        value: A tensor apart from autograd; it may be changed or freed once this is made.
        buffer: Where the copy goes: memory as `new_buffer` gives it, pinned for CUDA's tensors.
    """

    __slots__ = ("_event", "buffer")

    def __init__(self, value: Tensor, buffer: Tensor | None = None) -> None:
        self._event: Any = None
        is_cuda = value.is_cuda
        if buffer is None:
            buffer = new_buffer(value.shape, value.dtype, pinned=is_cuda)
        self.buffer = buffer.copy_(value, non_blocking=is_cuda)
        if is_cuda:
            # One that does not block would keep a core busy that a data loader may need.
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(value.device))

    @classmethod
    def of_host(cls, buffer: Tensor) -> HostCopy:
        """Return a copy that is in the host's memory already."""
        known = cls.__new__(cls)
        known._event = None  # noqa: SLF001 - of this class
        known.buffer = buffer
        return known

    def __del__(self) -> None:
        # torch asks CUDA for leave to use pinned memory again, and ends the process if CUDA
        # answers with an error, as it always does once a device failed.
        if self._event is None:
            return
        with not_disturbing_recordings():
            try:
                self._event.query()
            except Exception:  # noqa: BLE001 - whatever it says
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.buffer))
            del self._event, self.buffer

    @property
    def is_pinned(self) -> bool:
        """Whether the buffer is pinned."""
        return self._event is not None

    def has_arrived(self) -> bool:
        """Return whether the copy is there, without waiting for it.

        Raises:
            RuntimeError: The device failed.
        """
        if self._event is None:
            return True
        with not_disturbing_recordings():
            return bool(self._event.query())

    def wait(self) -> None:
        """Wait until the copy is there; another thread may be recording a CUDA graph meanwhile."""
        if self._event is not None:
            with not_disturbing_recordings():
                self._event.synchronize()

    def array(self) -> NDArray[Any]:
        """Return the elements, which share the buffer's memory; waits for the device."""
        self.wait()
        array: NDArray[Any] = self.buffer.numpy()
        return array

    def taken(self) -> Tensor:
        """Return the buffer, for another copy; this one has arrived, and is not used any more."""
        self._event = None
        return self.buffer
