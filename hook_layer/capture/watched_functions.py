"""Reports calls of functions of frameworks that have no hooks.

A function is wrapped for its first listener, and restored after the last one. References that a
script took before the function was wrapped are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any, TypeAlias, cast
from weakref import ref

from hook_layer.process.tracebacks import hide_frame

__all__ = ["Listening", "Watched", "WatchedFunction"]

_Function: TypeAlias = Callable[..., Any]


class _Nesting(threading.local):
    """Whether this thread is in the function: what it calls of itself is not reported."""

    value = False


class Watched:
    """Something that is called, and who listens to its calls."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # several threads may train
        self._listeners: tuple[Listening, ...] = ()

    def listen(self, method: Callable[..., None], *, is_before_call: bool = False) -> Listening:
        """Call a method with the arguments of each call, and with its result.

        Args:
            method: Must not raise; its owner is known weakly.
            is_before_call: Whether it is called before the function, with None for the result.
        """
        listening = Listening(self, method, is_before_call=is_before_call)
        with self._lock:
            is_first = not self._listeners
            self._listeners = (*self._listeners, listening)
            if is_first:
                self._wrap()
        return listening

    def forget(self, listening: Listening) -> None:
        """Stop calling a listener; without any, restore what was wrapped."""
        with self._lock:
            before = self._listeners
            self._listeners = tuple(other for other in before if other is not listening)
            if before and not self._listeners:
                self._unwrap()

    def _wrap(self) -> None:
        """Begin to report calls."""
        raise NotImplementedError

    def _unwrap(self) -> None:
        """Stop reporting calls."""
        raise NotImplementedError

    def _report(self, args: tuple[Any, ...], result: Any, *, is_before_call: bool = False) -> None:
        for listening in self._listeners:
            if listening.is_before_call is not is_before_call:
                continue
            owner = listening.owner()
            if owner is None:
                listening.remove()
            else:
                listening.function(owner, args, result)


class WatchedFunction(Watched):
    """A function that is wrapped while somebody listens.

    Args:
        owner: The module or class that it belongs to.
        name: Its name there.
    """

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__()
        self._owner = owner
        self._name = name
        self._nesting = _Nesting()
        self._original: _Function | None = None
        self._wrapper: _Function | None = None
        self._is_wrapped = False

    def _wrap(self) -> None:
        if self._is_wrapped:
            return
        original = getattr(self._owner, self._name)
        if self._original is not original:
            self._original, self._wrapper = original, self._wrapped(original, self._report)
        setattr(self._owner, self._name, self._wrapper)
        self._is_wrapped = True

    def _unwrap(self) -> None:
        if getattr(self._owner, self._name) is not self._wrapper:
            return  # somebody wrapped our wrapper: it must stay, and does nothing
        setattr(self._owner, self._name, self._original)
        self._is_wrapped = False

    def _wrapped(self, original: _Function, report: Callable[..., None]) -> _Function:
        """Return the wrapper of a function; a framework that compiles functions overrides this."""
        nesting = self._nesting

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            is_outermost, nesting.value = not nesting.value, True
            try:
                if not is_outermost:
                    return original(*args, **kwargs)
                given = (*args, *kwargs.values())
                report(given, None, is_before_call=True)
                result = original(*args, **kwargs)
                report(given, result)
                return result  # noqa: TRY300 - one block for all ways
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                nesting.value = not is_outermost

        return wrapper


class Listening:
    """A listener, which can be removed, as a weak reference to the owner and a function.

    Args:
        watched: What it listens to.
        method: Is called; its owner is known weakly.
        is_before_call: Whether it is called before the function.
    """

    def __init__(
        self, watched: Watched, method: Callable[..., None], *, is_before_call: bool
    ) -> None:
        bound = cast("MethodType", method)
        self.owner, self.function = ref(bound.__self__), bound.__func__
        self.is_before_call = is_before_call
        self._watched = watched

    def remove(self) -> None:
        """Listen no more."""
        self._watched.forget(self)
