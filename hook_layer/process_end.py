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


class ProcessEnd:
    """Closes an object at process exit, if it still exists.

    An object that is deleted before leaves a function with the remaining work. It runs at process
    exit or in `finish_left`, never during garbage collection, where taking a lock could deadlock.

    Args:
        owner: The object; only weakly held.

    Attributes:
        cancel: Does nothing when the process ends.
    """

    error: ClassVar[BaseException | None] = None
    """What ends the process, as nobody caught it; None as long as it does not end."""
    _left: ClassVar[list[ProcessEnd]] = []

    def __init__(self, owner: Closable) -> None:
        self._pid = os.getpid()
        self._owner = weakref.ref(owner)
        self._rest: Callable[[], None] | None = None
        self.cancel = at_process_end(self._run_at_exit)

    def _run_at_exit(self) -> None:
        error = getattr(sys, "last_value", None) or sys.exc_info()[1]
        ProcessEnd.error = None if isinstance(error, SystemExit) else error
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
