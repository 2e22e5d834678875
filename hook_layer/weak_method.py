"""A method whose owner is known weakly, without a callback at its end.

`weakref.WeakMethod` is told when its owner dies, for which each one hangs a weak reference of its
own at the owner. Up to Python 3.11 an owner that has many of these, in garbage that nobody has
collected yet, brings the process down as it dies: what the interpreter allocates to tell them may
start the collector, which frees them under its hands. References that are not told of the end are
one shared reference, and are spared that.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, TypeVar, cast
from weakref import ref

__all__ = ["WeakMethod"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


class WeakMethod(Generic[_Method]):
    """A bound method that does not keep its owner alive.

    Args:
        method: The method.
    """

    __slots__ = ("__weakref__", "_function", "_owner")

    def __init__(self, method: _Method) -> None:
        bound = cast("MethodType", method)
        self._owner = ref(bound.__self__)
        self._function = bound.__func__

    def __call__(self) -> _Method | None:
        """Return the method; None if its owner is gone."""
        owner = self._owner()
        return None if owner is None else cast("_Method", MethodType(self._function, owner))
