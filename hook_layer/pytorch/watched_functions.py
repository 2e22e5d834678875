"""Reports calls of torch functions while a hook listens.

Where torch has no hook its function is wrapped: once in a process, when the first listener comes,
and back again when the last one goes. Listeners are known weakly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple

import torch
from torch.amp.grad_scaler import GradScaler

from hook_layer.pytorch.calls import uncompiled
from hook_layer.tracebacks import hide_frame
from hook_layer.weak_method import WeakMethod

__all__ = ["BACKWARD", "SCALER_SCALE", "SCALER_STEP", "Listening", "WatchedFunction"]


class _Nesting(threading.local):
    """Whether this thread is in the function: what it calls of itself tells nothing new."""

    value = False


class _Listener(NamedTuple):
    """Who is called, before or after the function."""

    method: WeakMethod[Callable[..., None]]
    is_before_call: bool


class WatchedFunction:
    """A function, and who listens to its calls.

    Args:
        owner: The module or class that it belongs to.
        name: Its name there.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name
        self._nesting = _Nesting()
        self._listeners: tuple[_Listener, ...] = ()
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None
        self._is_wrapped = False

    @property
    def is_wrapped(self) -> bool:
        """Whether the function is wrapped at present."""
        return self._is_wrapped

    def listen(self, method: Callable[..., None], *, is_before_call: bool = False) -> Listening:
        """Call a method with the arguments of each call, and with its result.

        Args:
            method: Must not raise; its owner is known weakly.
            is_before_call: Whether it is called before the function, with None for the result.
        """
        listener = _Listener(WeakMethod(method), is_before_call)
        self._listeners = (*self._listeners, listener)
        self._wrap()
        return Listening(self, listener)

    def forget(self, listener: _Listener) -> None:
        """Call a listener no more; without any the function is again what it was."""
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        if not self._listeners:
            self._unwrap()

    def _wrap(self) -> None:
        if self._is_wrapped:
            return
        original = getattr(self._owner, self._name)
        if self._original is not original:
            self._original, self._wrapper = original, self._wrapped(original)
        setattr(self._owner, self._name, self._wrapper)
        self._is_wrapped = True

    def _unwrap(self) -> None:
        if getattr(self._owner, self._name) is not self._wrapper:
            return  # somebody wrapped our wrapper: it must stay, and does nothing
        setattr(self._owner, self._name, self._original)
        self._is_wrapped = False

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        nesting = self._nesting
        report = uncompiled(self._report)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            is_outermost, nesting.value = not nesting.value, True
            try:
                if not is_outermost:
                    return original(*args, **kwargs)
                given = (*args, *kwargs.values())
                report(given, None, is_before=True)
                result = original(*args, **kwargs)
                report(given, result)
                return result  # noqa: TRY300 - one block for all ways
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                nesting.value = not is_outermost

        # What it calls may be compiled, as without it, but not the wrapper itself.
        skipped: Callable[..., Any] = torch.compiler.disable(wrapper, recursive=False)  # type: ignore[no-untyped-call]
        return skipped

    def _report(self, args: tuple[Any, ...], result: Any, *, is_before: bool = False) -> None:
        for listener in self._listeners:
            if listener.is_before_call is not is_before:
                continue
            method = listener.method()
            if method is None:
                self.forget(listener)
            else:
                method(args, result)


class Listening:
    """A listener that can be removed, as torch's own hooks can.

    Args:
        function: What it listens to.
        listener: The listener.
    """

    def __init__(self, function: WatchedFunction, listener: _Listener) -> None:
        self._function = function
        self._listener = listener

    def remove(self) -> None:
        """Listen no more."""
        self._function.forget(self._listener)


BACKWARD: Final = WatchedFunction(torch.autograd, "backward")
"""`torch.autograd.backward`, which `Tensor.backward` calls."""
SCALER_SCALE: Final = WatchedFunction(GradScaler, "scale")
SCALER_STEP: Final = WatchedFunction(GradScaler, "step")
