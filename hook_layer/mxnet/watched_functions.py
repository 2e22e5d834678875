"""Functions of MXNet that have no hooks: wrapped, as long as somebody listens to their calls.

A function is wrapped when its first listener comes, and what it was before when the last one goes.
Listeners are known weakly. References to a function that a script took before are not seen.
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

Listener = Callable[..., None]
"""Called with the arguments of a call; must not raise."""


class _Inside(threading.local):
    """Whether this thread is in the function: what it calls of itself tells nothing new."""

    value = False


class WatchedFunction:
    """A function, and who listens to its calls.

    Args:
        owner: The module or class that it belongs to.
        name: Its name there.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name
        self._inside = _Inside()
        self._listeners: tuple[Listening, ...] = ()
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def listen(
        self, *, before: Listener | None = None, behind: Listener | None = None
    ) -> Listening:
        """Call methods with the arguments of each call.

        Args:
            before: Method that is called before the function.
            behind: Method that is called when the function returned; not if it raised.
        """
        listening = Listening(self, before, behind)
        self._listeners = (*self._listeners, listening)
        if self._wrapper is None:
            self._original = getattr(self._owner, self._name)
            self._wrapper = self._wrapped(self._original)
            setattr(self._owner, self._name, self._wrapper)
        return listening

    def forget(self, listening: Listening) -> None:
        """Call a listener no more; without any the function is again what it was."""
        self._listeners = tuple(other for other in self._listeners if other is not listening)
        if self._listeners or vars(self._owner).get(self._name) is not self._wrapper:
            return  # somebody wrapped our wrapper: it must stay, and does nothing
        setattr(self._owner, self._name, self._original)
        self._wrapper = self._original = None

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside = self._inside

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if inside.value:
                return original(*args, **kwargs)
            inside.value = True
            try:
                for listening in self._listeners:
                    listening.tell_before(*args, **kwargs)
                result = original(*args, **kwargs)
                for listening in self._listeners:
                    listening.tell_behind(*args, **kwargs)
                return result
            finally:
                inside.value = False

        return wrapper


class Listening:
    """Who listens to a function.

    Args:
        function: The function.
        before: Method that is called before it; its owner is known weakly.
        behind: Method that is called behind it; as above.
    """

    def __init__(
        self, function: WatchedFunction, before: Listener | None, behind: Listener | None
    ) -> None:
        self._function = function
        self._before = None if before is None else WeakMethod(before)
        self._behind = None if behind is None else WeakMethod(behind)

    def remove(self) -> None:
        """Listen no more."""
        self._function.forget(self)

    def tell_before(self, *args: Any, **kwargs: Any) -> None:
        """Report that the function is about to be called."""
        self._tell(self._before, args, kwargs)

    def tell_behind(self, *args: Any, **kwargs: Any) -> None:
        """Report that the function returned."""
        self._tell(self._behind, args, kwargs)

    def _tell(
        self,
        listener: WeakMethod[Listener] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if listener is None:
            return
        method = listener()
        if method is None:
            self.remove()
        else:
            method(*args, **kwargs)


BACKWARD: Final = WatchedFunction(autograd, "backward")
ARRAY_BACKWARD: Final = WatchedFunction(NDArray, "backward")
TRAINER_STEP: Final = WatchedFunction(Trainer, "step")
"""Reduces gradients over contexts and workers, and updates the parameters."""
TRAINER_UPDATE: Final = WatchedFunction(Trainer, "update")
"""Updates the parameters, where a script reduced the gradients itself."""
TRAINER_UPDATES: Final = WatchedFunction(Trainer, "_update")
"""What both of them end with: the gradients are reduced by then, and the parameters to be updated.
Not public, but this version of MXNet is the last one."""
