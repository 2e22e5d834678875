"""A weak reference to a method's owner, without a callback.

`weakref.WeakMethod` adds a weak reference with a callback to its owner. Up to Python 3.11, an owner
with many of these can crash the process: while the interpreter calls them, an allocation can start
the garbage collector, which frees them. Weak references without a callback share one object and do
not have this problem.
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

    Attributes:
        owner: Weak reference to its owner.
        function: The function of the method, for calls without a frame of this class.
    """

    __slots__ = ("__weakref__", "function", "owner")

    def __init__(self, method: _Method) -> None:
        bound = cast("MethodType", method)
        self.owner = ref(bound.__self__)
        self.function = bound.__func__

    def __call__(self) -> _Method | None:
        """Return the method; None if its owner was deleted."""
        owner = self.owner()
        return None if owner is None else cast("_Method", MethodType(self.function, owner))
