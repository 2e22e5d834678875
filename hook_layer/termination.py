"""SIGTERM: a spot interruption, StopTrainingJob, or Kubernetes taking the machine away.

Training has not ended then, but is interrupted: no end marker is written, whatever follows. Where
nobody else handles the signal, the process stores what was captured before it ends, by the signal,
as it would have. Where the training script has a handler of its own that one is called and decides.

A handler that is installed after the first step replaces this one; it may call this one, or close
the hook with `end_of_training=False`.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

from hook_layer.stuck_thread import StuckThreadWatch, end_by_signal
from hook_layer.time_limit import within

__all__ = ["Interruptible", "TerminationHandler", "on_termination"]

_Handler = Callable[[int, "FrameType | None"], Any]
_GRACE_S: Final = 2.0
"""How long the main thread may stay at one place before another one acts."""
_STUCK_TIMEOUT_S: Final = 30.0


class Interruptible(Protocol):
    """What is told of SIGTERM."""

    def note_termination(self) -> None:
        """Note that training is interrupted; in the midst of anything, so only by setting flags."""
        ...

    def store_before_termination(self) -> None:
        """Store what there is, and return within a short time: the process ends behind this."""
        ...


class TerminationHandler:
    """The handler of SIGTERM, installed as long as somebody is to be told of it."""

    def __init__(self) -> None:
        self._told: weakref.WeakSet[Interruptible] = weakref.WeakSet()
        self._previous: _Handler | int | None = None
        self._watch: StuckThreadWatch | None = None
        self._is_installed = self._is_ending = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def tell(self, hook: Interruptible) -> None:
        """Tell somebody of SIGTERM from now on; without effect outside of the main thread.

        A signal that the process ignores stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._is_installed:
            previous = signal.getsignal(signal.SIGTERM)
            if previous is None or previous is signal.SIG_IGN:
                return  # ignored, or handled outside of Python
            with suppress(ValueError):  # not the main interpreter
                signal.signal(signal.SIGTERM, self._on_signal)
                self._previous, self._is_installed = previous, True
                if not callable(previous):
                    self._watch = StuckThreadWatch(
                        signal.SIGTERM, self._end_from_elsewhere, grace_s=_GRACE_S
                    )
        self._told.add(hook)

    def forget(self, hook: Interruptible) -> None:
        """Tell somebody no more; after the last one the signal is as it was before."""
        self._told.discard(hook)
        if not self._told and threading.current_thread() is threading.main_thread():
            self._uninstall()

    def _uninstall(self) -> None:
        if self._is_installed and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._previous)
            self._is_installed = False
            if self._watch is not None:
                self._watch.stop()

    def _forked(self) -> None:
        """Leave SIGTERM in a forked child as it was without us."""
        self._told.clear()
        with suppress(ValueError):
            self._uninstall()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._watch is not None:
            self._watch.handled()
        for hook in list(self._told):
            hook.note_termination()
        if callable(self._previous):
            self._previous(number, frame)
            return
        if not self._is_ending:  # otherwise somebody is impatient
            self._store_all()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _end_from_elsewhere(self) -> None:
        """Do what the main thread does not come to do."""
        if signal.getsignal(signal.SIGTERM) != self._on_signal:
            return  # somebody else's
        for hook in list(self._told):
            hook.note_termination()
        with suppress(TimeoutError):
            within(_STUCK_TIMEOUT_S, self._store_all)
        end_by_signal(signal.SIGTERM)

    def _store_all(self) -> None:
        self._is_ending = True
        for hook in list(self._told):
            # Whatever breaks in the midst of a thread that was doing something else.
            with suppress(Exception):
                hook.store_before_termination()


on_termination: Final = TerminationHandler()
"""The process's handler."""
