"""Handles SIGTERM and SIGHUP, as from spot interruptions, StopTrainingJob or closed terminals.

Training is then interrupted, not ended: no end marker is written. If no other handler exists, the
process stores captured data, and then ends by the signal. If the training script has its own
handler, that one is called and decides.

A handler that is installed after the first step replaces this one. It may call this one, or close
the hook with `end_of_training=False`. The first step of the next hook installs this handler again,
and so does the next training with a trainer, because Lightning restores the previous handler after
each.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

from hook_layer.process.stuck_thread import StuckThreadWatch, end_by_signal
from hook_layer.process.time_limit import within

__all__ = ["HANDLERS", "Interruptible", "TerminationHandler"]

_Handler = Callable[[int, "FrameType | None"], Any]
_GRACE_S: Final = 2.0
"""Time that the main thread may spend at one place before another thread acts."""
_STUCK_TIMEOUT_S: Final = 30.0


class Interruptible(Protocol):
    """An object that is notified of such a signal."""

    def note_termination(self, number: signal.Signals) -> None:
        """Note that training is interrupted. It may run at any point, so it must only set flags.

        Args:
            number: The signal.
        """
        ...

    def store_before_termination(self) -> None:
        """Store captured data within a short time; the process ends afterwards."""
        ...


class _Installed:
    """An installed handler, and the handler that it replaced."""

    def __init__(self, owner: TerminationHandler, previous: _Handler | int) -> None:
        self.owner = owner
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.owner.handle(self, number, frame)


class TerminationHandler:
    """The handler of a signal, installed while a hook listens to it.

    Args:
        number: The signal.
        watches_main_thread: Whether another thread acts if the main thread is stuck.
    """

    def __init__(
        self, number: signal.Signals = signal.SIGTERM, *, watches_main_thread: bool = True
    ) -> None:
        self._number = number
        self._watches_main_thread = watches_main_thread
        self._hooks: weakref.WeakSet[Interruptible] = weakref.WeakSet()
        self._handling: list[tuple[_Installed, FrameType | None]] = []
        self._watch: StuckThreadWatch | None = None
        self._is_ending = self._stores_elsewhere = False
        self._has_stored = threading.Event()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def add(self, hook: Interruptible) -> None:
        """Notify a hook of the signal from now on; no effect outside of the main thread.

        A signal that the process ignores stays ignored. If the handler was replaced, a new one is
        installed, which calls the replacement.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        installed = self._installed() or self._install()
        if installed is None:
            return
        if callable(installed.previous):
            self._stop_watch()
        elif self._watch is None and self._watches_main_thread:
            self._watch = StuckThreadWatch(self._number, self._end_from_elsewhere, grace_s=_GRACE_S)
        self._hooks.add(hook)

    def remove(self, hook: Interruptible) -> None:
        """Stop notifying a hook; after the last one, restore the signal."""
        self._hooks.discard(hook)
        if not self._hooks and threading.current_thread() is threading.main_thread():
            self._uninstall()

    def handle(self, installed: _Installed, number: int, frame: FrameType | None) -> None:
        """Handle a signal, only once if handlers call each other.

        Args:
            installed: The called handler.
            number: The signal.
            frame: The interrupted frame, which handlers pass on.
        """
        if self._watch is not None:
            self._watch.handled()
        callers = [one for one, interrupted in self._handling if interrupted is frame]
        if not callers:
            for hook in list(self._hooks):
                hook.note_termination(self._number)
        if not callable(installed.previous):
            self._end(number)
        elif installed not in callers:
            self._handling.append((installed, frame))
            try:
                installed.previous(number, frame)
            finally:
                self._handling.pop()

    def _installed(self) -> _Installed | None:
        """Return the process's handler, if it is Stepwatch's."""
        now = signal.getsignal(self._number)
        return now if isinstance(now, _Installed) and now.owner is self else None

    def _install(self) -> _Installed | None:
        previous = signal.getsignal(self._number)
        if previous is None or previous is signal.SIG_IGN:
            return None  # ignored, or handled outside of Python
        installed = _Installed(self, previous)
        with suppress(ValueError):  # not the main interpreter
            signal.signal(self._number, installed)
            return installed
        return None

    def _uninstall(self) -> None:
        installed = self._installed()
        if installed is not None:
            signal.signal(self._number, installed.previous)
        self._stop_watch()

    def _stop_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def _forked(self) -> None:
        """Restore the previous handler in a forked child."""
        self._hooks.clear()
        with suppress(ValueError):
            self._uninstall()

    def _end(self, number: int) -> None:
        if not self._is_ending:
            self._store_all()
        elif self._stores_elsewhere:  # only once: a repeated signal ends the process
            self._stores_elsewhere = False
            self._has_stored.wait(_STUCK_TIMEOUT_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _end_from_elsewhere(self) -> None:
        """Do the work of the stuck main thread."""
        installed = self._installed()
        if installed is None or callable(installed.previous):
            return  # a handler of others
        for hook in list(self._hooks):
            hook.note_termination(self._number)
        self._stores_elsewhere = True
        with suppress(TimeoutError):
            within(_STUCK_TIMEOUT_S, self._store_all)
        end_by_signal(self._number)

    def _store_all(self) -> None:
        self._is_ending = True
        for hook in list(self._hooks):
            # Another thread may have been interrupted at any point.
            with suppress(Exception):
                hook.store_before_termination()
        self._has_stored.set()


def _handlers() -> Iterator[TerminationHandler]:
    yield TerminationHandler(signal.SIGTERM)
    if hasattr(signal, "SIGHUP"):
        # A process can watch only one signal this way.
        yield TerminationHandler(signal.SIGHUP, watches_main_thread=False)


HANDLERS: Final = (*_handlers(),)
"""The process's handlers of all signals that interrupt training."""
