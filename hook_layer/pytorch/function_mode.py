"""Observes the functions of torch that one thread calls, for a limited time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from hook_layer.guard import FailureLog
from hook_layer.process.tracebacks import hide_frame

__all__ = ["CallObserver", "ObservedCalls", "has_compiled_anything"]

CallObserver: TypeAlias = Callable[[Any, "tuple[Any, ...]", Mapping[str, Any], Any], None]
"""Called with a function, its positional and keyword arguments, and its result."""
_CACHE: Final = "cached_backends"
_OF_DEVICES: Final = "DeviceContext"


class ObservedCalls:
    """Reports the functions of torch that a thread calls between `begin` and `end`.

    Args:
        observer: Called for each function; not for functions that these call, nor in compiled code.
        failures: Counts its errors, which end the observation.
        part: The part of the hook that they are counted for.
    """

    def __init__(self, observer: CallObserver, failures: FailureLog, part: str) -> None:
        self._observer = observer
        self._failures = failures
        self._part = part
        self._mode: _Mode | None = None
        self._thread = 0

    @property
    def is_on(self) -> bool:
        """Whether calls are reported, or the mode could not be removed yet."""
        return self._mode is not None

    def begin(self) -> bool:
        """Report the calls of this thread; return whether it does.

        It does not under a mode of the script: where that ends, torch would remove ours instead.
        """
        self.end()
        is_free = self._mode is None and not _has_other_modes()
        if is_free and self._part not in self._failures.off:
            self._thread = threading.get_ident()
            self._mode = _Mode(self._observe)
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self._mode is not None and not self._mode.is_over

    def _observe(self, *call: Any) -> None:
        try:
            self._observer(*call)
        except Exception as error:  # noqa: BLE001 - the script continues after any error
            self._failures.failed(self._part, error)
            if self._mode is not None:
                self._mode.is_over = True

    def end(self) -> None:
        """Stop reporting.

        The mode stays, without effect, in another thread and under a newer mode of the script.
        """
        if self._mode is None:
            return
        self._mode.is_over = True
        if self._thread == threading.get_ident() and _is_innermost(self._mode):
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._mode = None


class _Mode(TorchFunctionMode):
    """Reports functions until it `is_over`."""

    def __init__(self, observer: CallObserver) -> None:
        super().__init__()
        self._observer = observer
        self.is_over = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        try:
            result = func(*args, **keywords)
        except BaseException as error:
            hide_frame(error)
            raise
        if not self.is_over and not torch.compiler.is_compiling():
            self._observer(func, args, keywords, result)
        return result


def _has_other_modes() -> bool:
    """Return whether any mode is active but that of `torch.set_default_device`."""
    depth = torch._C._len_torch_function_stack()  # noqa: SLF001 - no public way
    modes = (torch._C._get_function_stack_at(place) for place in range(depth))  # noqa: SLF001
    return any(type(mode).__name__ != _OF_DEVICES for mode in modes)


def has_compiled_anything() -> bool:
    """Return whether torch.compile was used, ignoring functions that it must skip."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return any(backend is not None for backend in getattr(dynamo, _CACHE, {}).values())


def _is_innermost(mode: TorchFunctionMode) -> bool:
    depth = torch._C._len_torch_function_stack()  # noqa: SLF001 - no public way
    return depth > 0 and torch._C._get_function_stack_at(depth - 1) is mode  # noqa: SLF001
