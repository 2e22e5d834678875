"""A signal that reaches a main thread which does not get round to handling it.

Python handles signals in the main thread, between two instructions. While that thread is inside a
library, e.g. in a collective operation whose other workers are gone, a process with a handler does
not react to SIGTERM at all, whereas one without a handler ends at once. So another thread, which
Python tells of signals by a pipe, acts when the main thread does not.
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
    """Acts on a signal that the main thread does not handle; to be made in the main thread.

    Without effect where another listener, such as an event loop, already gets the signals.

    Args:
        number: The signal.
        act: What is done then, in another thread.
        grace_s: How long the main thread may do nothing before it counts as stuck, seconds.
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
        """Watch no more; in the main thread, also that of a forked child."""
        if self._writer < 0:
            return
        with suppress(ValueError):
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._writer):
                signal.set_wakeup_fd(now)
        self._close()

    def _close(self) -> None:
        # Closing the other end lets the thread come to its end, which closes this one.
        writer, self._writer = self._writer, -1
        os.close(writer)

    def _run(self) -> None:
        reader = self._reader
        while numbers := os.read(reader, 256):
            if self._number in numbers and self._is_main_stuck():
                self._act()
        os.close(reader)

    def _is_main_stuck(self) -> bool:
        """Return whether the main thread does nothing that Python asks of it.

        If it does something else than to handle the signal, it was not meant: a child of this
        process was, which for a moment shares the pipe.
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
        # What is pending is done behind the handling of signals.
        return not (is_alive.is_set() or self._handled.is_set())


def end_by_signal(number: int) -> None:
    """End this process by a signal as if nothing handled it; in any thread."""
    with suppress(Exception):
        library = ctypes.CDLL(None)
        library.signal.argtypes, library.signal.restype = (ctypes.c_int, ctypes.c_void_p), None
        library.signal(number, None)
        os.kill(os.getpid(), number)
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
