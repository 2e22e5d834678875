"""Calls listeners with the calls of MXNet's functions that have no hooks.

A function is wrapped for its first listener, and restored after the last one. Listeners are known
weakly. References that a script took before the function was wrapped are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from mxnet import autograd
from mxnet.gluon import Trainer
from mxnet.ndarray import NDArray

from hook_layer.weak_method import WeakMethod

__all__ = [
    "ARRAY_BACKWARD",
    "BACKWARD",
    "TRAINER_STEP",
    "TRAINER_UPDATE",
    "TRAINER_UPDATES",
    "Listening",
    "WatchedFunction",
]

_BEFORE, _AFTER = 0, 1
Listener = Callable[..., None]
"""Called with the arguments of a call; must not raise."""


class _CallState(threading.local):
    """Whether this thread runs the function, whose calls of itself are not reported."""

    is_running = False


class WatchedFunction:
    """A function, and who listens to its calls."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name
        self._state = _CallState()
        self._listeners: tuple[Listening, ...] = ()
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def listen(self, *, before: Listener | None = None, after: Listener | None = None) -> Listening:
        """Call methods with the arguments of each call; not the second one if the call raised."""
        listening = Listening(self, before, after)
        self._listeners = (*self._listeners, listening)
        if self._wrapper is None:
            self._original = getattr(self._owner, self._name)
            self._wrapper = self._wrapped(self._original)
            setattr(self._owner, self._name, self._wrapper)
        return listening

    def forget(self, listening: Listening) -> None:
        """Stop calling a listener; after the last one, restore the function."""
        self._listeners = tuple(other for other in self._listeners if other is not listening)
        if self._listeners or vars(self._owner).get(self._name) is not self._wrapper:
            return  # somebody wrapped our wrapper: it must stay, and does nothing
        setattr(self._owner, self._name, self._original)
        self._wrapper = self._original = None

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        state = self._state

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if state.is_running:
                return original(*args, **kwargs)
            state.is_running = True
            try:
                for listening in self._listeners:
                    listening.report(_BEFORE, args, kwargs)
                result = original(*args, **kwargs)
                for listening in self._listeners:
                    listening.report(_AFTER, args, kwargs)
                return result
            finally:
                state.is_running = False

        return wrapper


class Listening:
    """Who listens to a function, before or after it; the owners of the methods are known weakly."""

    def __init__(
        self, function: WatchedFunction, before: Listener | None, after: Listener | None
    ) -> None:
        self._function = function
        self._methods = [None if each is None else WeakMethod(each) for each in (before, after)]

    def remove(self) -> None:
        """Listen no more."""
        self._function.forget(self)

    def report(self, moment: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Report a call of the function, before or after it."""
        known = self._methods[moment]
        method = None if known is None else known()
        if method is not None:
            method(*args, **kwargs)
        elif known is not None:
            self.remove()


BACKWARD: Final = WatchedFunction(autograd, "backward")
ARRAY_BACKWARD: Final = WatchedFunction(NDArray, "backward")
TRAINER_STEP: Final = WatchedFunction(Trainer, "step")
"""Reduces gradients over contexts and workers, and updates the parameters."""
TRAINER_UPDATE: Final = WatchedFunction(Trainer, "update")
"""Updates the parameters, where a script reduced the gradients itself."""
TRAINER_UPDATES: Final = WatchedFunction(Trainer, "_update")
"""What both of them end with: the gradients are reduced by then, and the parameters to be updated.
Not public, but this version of MXNet is the last one."""
