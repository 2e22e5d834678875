"""Closes hooks at process exit, without keeping them alive until then."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, Final, Protocol

__all__ = ["Closable", "ProcessEnd", "at_process_end"]

_PRIORITY: Final = 100
"""Calls come before the end of what multiprocessing has itself, such as queues."""


class Closable(Protocol):
    """An object that is closed at process exit."""

    def close(self) -> None:
        """Close the object."""
        ...


def at_process_end(call: Callable[[], None]) -> Callable[[], None]:
    """Call something when this process ends, once or twice; return what cancels that.

    Children that multiprocessing forks end without what `atexit` knows.
    """
    undo = ExitStack()
    undo.callback(atexit.unregister, atexit.register(call))
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize  # noqa: PLC0415 - such a child has it already

        undo.callback(Finalize(None, call, exitpriority=_PRIORITY).cancel)
    return undo.close


def _newest_error() -> BaseException | None:
    """Return the error that ended the process, or a cell of a notebook, or is being handled."""
    return getattr(sys, "last_value", None) or sys.exc_info()[1]


class ProcessEnd:
    """Closes an object at process exit, if it still exists.

    An object that is deleted before leaves a function with the remaining work. It runs at process
    exit or in `finish_left`, never during garbage collection, where taking a lock could deadlock.

    Args:
        owner: The object; only weakly held.

    Attributes:
        cancel: Cancels the call at process exit.
    """

    error: ClassVar[BaseException | None] = None
    """The uncaught error that ends the process; None without one, or before the end."""
    _left: ClassVar[list[ProcessEnd]] = []

    def __init__(self, owner: Closable) -> None:
        self._pid = os.getpid()
        self._owner = weakref.ref(owner)
        self._rest: Callable[[], None] | None = None
        # A notebook keeps the error of an earlier cell, and a forked child that of its parent.
        self._earlier = id(_newest_error())
        self.cancel = at_process_end(self._run_at_exit)

    def _run_at_exit(self) -> None:
        error = _newest_error()
        is_other = isinstance(error, SystemExit) or id(error) == self._earlier
        ProcessEnd.error = None if is_other else error
        self.run()

    def run(self) -> None:
        """Close the object, or do what it left; a forked child has none of its threads."""
        self.cancel()
        if self._pid != os.getpid():
            return
        owner = self._owner()
        if owner is not None:
            owner.close()
        elif self._rest is not None:
            self._rest()

    def leave(self, rest: Callable[[], None]) -> None:
        """Store the remaining work of an object that is being deleted."""
        self._rest = rest
        self._left.append(self)

    @classmethod
    def finish_left(cls) -> None:
        """Do the remaining work of deleted objects now."""
        left, cls._left = cls._left, []
        for end in left:
            end.run()
