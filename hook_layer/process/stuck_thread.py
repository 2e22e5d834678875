"""Handles a signal when the main thread is stuck and cannot.

Python handles signals in the main thread, between two instructions. While that thread is inside a
library, e.g. in a collective operation with missing workers, a process with a handler ignores
SIGTERM; without a handler it would end at once. So another thread, which Python notifies through a
pipe, acts instead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

__all__ = ["StuckThreadWatch", "end_by_signal"]

_CHECK_S: Final = 0.1
_PendingCall: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class StuckThreadWatch:
    """Acts on a signal that the main thread does not handle; create it in the main thread.

    It has no effect if another listener, such as an event loop, already receives the signals.

    Args:
        number: The signal.
        act: The action, called in another thread.
        grace_s: Time without activity after which the main thread counts as stuck, seconds.
    """

    def __init__(self, number: int, act: Callable[[], None], *, grace_s: float) -> None:
        self._number = number
        self._act = act
        self._grace_s = grace_s
        self._handled = threading.Event()
        self._calls: list[object] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self._close()
            return
        thread = threading.Thread(target=self._run, name="stepwatch-signals", daemon=True)
        with suppress(RuntimeError):  # the interpreter is shutting down
            thread.start()

    def handled(self) -> None:
        """Note that the main thread handles the signal."""
        self._handled.set()

    def stop(self) -> None:
        """Stop watching; call it in the main thread, also in a forked child."""
        if self._writer < 0:
            return
        with suppress(ValueError):
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._writer):
                signal.set_wakeup_fd(now)
        self._close()

    def _close(self) -> None:
        # Closing the write end lets the thread finish, which then closes the read end.
        writer, self._writer = self._writer, -1
        os.close(writer)

    def _run(self) -> None:
        reader = self._reader
        while numbers := os.read(reader, 256):
            if self._number in numbers and self._is_main_stuck():
                self._act()
        os.close(reader)

    def _is_main_stuck(self) -> bool:
        """Return whether the main thread executes no Python code.

        If it executes other code than the handler, the signal was for a child of this process,
        which shares the pipe briefly.
        """
        is_alive = threading.Event()

        def note(_: int | None) -> int:
            is_alive.set()
            return 0

        call = _PendingCall(note)
        self._calls.append(call)  # may be called much later
        with suppress(AttributeError):  # another implementation of Python
            ctypes.pythonapi.Py_AddPendingCall(call, None)
        deadline = time.monotonic() + self._grace_s
        while time.monotonic() < deadline and not is_alive.wait(_CHECK_S):
            if self._handled.is_set():
                return False
        # Pending calls run after signal handlers.
        return not (is_alive.is_set() or self._handled.is_set())


def end_by_signal(number: int) -> None:
    """End this process by a signal as if it had no handler; works in any thread."""
    with suppress(Exception):
        library = ctypes.CDLL(None)
        library.signal.argtypes, library.signal.restype = (ctypes.c_int, ctypes.c_void_p), None
        library.signal(number, None)
        os.kill(os.getpid(), number)
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
