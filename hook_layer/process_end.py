"""Closing hooks when the process ends, without keeping them alive until then."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import ClassVar, Protocol

__all__ = ["Closable", "ProcessEnd"]


class Closable(Protocol):
    """What is closed when the process ends."""

    def close(self) -> None:
        """Finish."""
        ...


class ProcessEnd:
    """Closes an object when the process ends, if it is alive then.

    An object that dies before says what is left to do: that is done when the process ends, not
    or when `finish_left` is called, not where the garbage collector happened to run, for there no
    lock may be taken.

    Args:
        owner: The object; only weakly held.
    """

    is_now: ClassVar[bool] = False
    """Whether the process is ending."""
    _left: ClassVar[list[ProcessEnd]] = []

    def __init__(self, owner: Closable) -> None:
        self._pid = os.getpid()
        self._owner = weakref.ref(owner)
        self._rest: Callable[[], None] | None = None
        atexit.register(self._run_at_exit)

    def _run_at_exit(self) -> None:
        ProcessEnd.is_now = True
        self.run()

    def run(self) -> None:
        """Close the object, or do what it left."""
        owner = self._owner()
        if owner is not None:
            owner.close()
        elif self._rest is not None:
            self._rest()

    def leave(self, rest: Callable[[], None]) -> None:
        """Note what is left to do of an object that dies."""
        self._rest = rest
        self._left.append(self)

    @classmethod
    def finish_left(cls) -> None:
        """Do at once what is left to do of objects that have died."""
        while cls._left:
            end = cls._left.pop()
            if end._pid == os.getpid():  # noqa: SLF001 - of this class; a forked child has none of the threads
                end.cancel()
                end.run()

    def cancel(self) -> None:
        """Do nothing when the process ends."""
        atexit.unregister(self._run_at_exit)
