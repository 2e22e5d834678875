"""Keeps the end of a command's output in `console.log`, besides showing it."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import Final

from typing_extensions import Self

from hook_layer.storage.base import Store

__all__ = ["CONSOLE_LOG", "ConsoleLog"]

CONSOLE_LOG: Final = "console.log"
_MAX_BYTES: Final = 1 << 20
"""Bytes of output that are kept: the last ones."""
_CHUNK_BYTES: Final = 1 << 16
_END_S: Final = 5.0
"""Seconds for the rest of the output; a process that continues in the background may keep it."""
_STDERR: Final = 2


class ConsoleLog:
    """Copies what a command writes to its standard output and standard error.

    Args:
        store: The session's folder.
        stdout: File descriptor that shows the standard output.

    Attributes:
        stdout: File descriptor for the command's standard output, while this is entered.
        stderr: File descriptor for its standard error.
    """

    def __init__(self, store: Store, stdout: int) -> None:
        self._store = store
        self._shown = (stdout, _STDERR)
        self._kept = bytearray()
        self._num_written = self._num_bytes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        pipes = [os.pipe(), os.pipe()]
        self.stdout, self.stderr = (write for _, write in pipes)
        self._threads = [
            threading.Thread(target=self._copy, args=(read, shown), daemon=True)
            for (read, _), shown in zip(pipes, self._shown, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.stdout)
        os.close(self.stderr)
        for thread in self._threads:
            thread.join(_END_S)

    def write(self) -> None:
        """Write the file if there is new output.

        Raises:
            StorageError: The file cannot be written.
        """
        with self._lock:
            content, num_bytes = bytes(self._kept[-_MAX_BYTES:]), self._num_bytes
        if num_bytes > self._num_written:
            self._store.put(CONSOLE_LOG, content)
            self._num_written = num_bytes

    def _copy(self, source: int, shown: int) -> None:
        while chunk := os.read(source, _CHUNK_BYTES):
            with self._lock:
                self._kept += chunk
                self._num_bytes += len(chunk)
                if len(self._kept) > 2 * _MAX_BYTES:
                    del self._kept[:-_MAX_BYTES]
            shown = _show(shown, chunk)
        os.close(source)


def _show(shown: int, chunk: bytes) -> int:
    """Write a chunk to a file descriptor; return it, or -1 if nobody reads it any more."""
    try:
        while chunk and shown >= 0:
            select.select([], [shown], [])  # another process may have made it non-blocking
            with suppress(BlockingIOError):
                chunk = chunk[os.write(shown, chunk) :]
    except OSError:
        return -1
    return shown
