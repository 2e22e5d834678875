"""Ensures one writer per local folder, because two would write files with the same names.

Two unrelated processes (two trainings by mistake, or workers without a process group) would both be
`worker_0`. The first one locks a file in the folder; the system releases the lock when that process
ends. Within one process the newer hook wins, and the older one is closed: a notebook cell that runs
again creates a hook while a variable or a traceback still holds the previous one. S3 has no such
lock: there, a hook only knows others of its process.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakSet

from hook_layer.process.file_lock import HAS_LOCKS, FileLock
from hook_layer.storage.base import Store
from hook_layer.storage.local import LocalStore
from hook_layer.weak_method import WeakMethod

__all__ = ["CLAIM_FILE", "FolderClaim"]

logger = logging.getLogger("stepwatch")

CLAIM_FILE: Final = "claim.smd"
_MAX_TRIES: Final = 10
_PATIENCE_S: Final = 10.0
_MAX_BYTES: Final = 1000


class FolderClaim:
    """A claim on the folder of a store.

    Other stores, and systems without locks, grant it whatever other processes do.

    Args:
        store: The trial's root.
        stop: Stops the writing, called when another owner in this process claims the folder;
            referenced weakly. None: this claim neither gives way nor makes others give way.
    """

    _held: Final[WeakSet[FolderClaim]] = WeakSet()
    _left: Final[dict[str, WeakMethod[Callable[[float], object]]]] = {}

    def __init__(self, store: Store, stop: Callable[[], None] | None = None) -> None:
        self._owner_stops = None if stop is None else WeakMethod(stop)
        self._uri = store.uri
        self._is_taken = False
        self._path: str | None = None
        if HAS_LOCKS and isinstance(store, LocalStore):
            self._path = os.path.join(store.path, CLAIM_FILE)  # noqa: PTH118
        self._lock: FileLock | None = None
        self._pid = os.getpid()

    def take(self) -> str | None:
        """Claim the folder.

        Returns:
            None if the claim holds or is unknown; otherwise the holder.
        """
        if self._is_taken:
            return None
        left = self._left.pop(self._place, None)
        wait = None if left is None else left()
        if wait is not None:
            wait(_PATIENCE_S)
        self._supersede()
        holder = None if self._path is None else self._try_to_take(self._path)
        if holder is None:
            self._is_taken = True
            self._held.add(self)
        return holder

    @property
    def _place(self) -> str:
        return self._uri if self._path is None else os.path.realpath(self._path)

    def _try_to_take(self, path: str) -> str | None:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
            for _ in range(_MAX_TRIES):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                lock = _lock(descriptor)
                if lock is None:
                    return _holder(descriptor)
                if _is_file(descriptor, path):
                    self._lock = lock
                    self._sign(descriptor)
                    return None
                lock.release()  # its holder removed it after it was opened
        except OSError as error:
            logger.debug("%s cannot be claimed: %s", path, error)
        return None

    def release(self) -> None:
        """Release the folder; safe at any time, even without a claim."""
        self._is_taken = False
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with suppress(OSError):
            if os.getpid() == self._pid and self._path is not None:
                os.unlink(self._path)  # noqa: PTH108
        lock.release()

    def leave(self, wait: Callable[[float], object]) -> None:
        """Release the folder while data for it is still in transfer; takes no lock.

        Args:
            wait: Method that waits for the data, at most for the given seconds. The next owner of
                the folder in this process calls it. Its owner is referenced weakly.
        """
        if self._is_taken:
            self._left[self._place] = WeakMethod(wait)
        self.release()

    def give_way(self, other: FolderClaim) -> None:
        """Stop the owner and release the folder, if both claims are on the same one."""
        if self._owner_stops is None or not self._holds(other):
            return
        stop = self._owner_stops()
        if stop is not None:
            stop()
        self.release()

    def _supersede(self) -> None:
        """Make the folder's owner in this process give way, if there is one."""
        if self._owner_stops is not None:
            for other in list(self._held):
                other.give_way(self)

    def _holds(self, other: FolderClaim) -> bool:
        if not self._is_taken or self._pid != os.getpid():
            return False
        if self._path is None or other._path is None:
            return self._uri == other._uri
        try:
            return os.path.samefile(self._path, other._path)  # noqa: PTH121
        except OSError:
            return False

    def _sign(self, descriptor: int) -> None:
        holder = {"pid": self._pid, "host": socket.gethostname()}
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _lock(descriptor: int) -> FileLock | None:
    """Lock an open file; close it if there are no locks; see `FileLock.take`."""
    try:
        return FileLock.take(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _is_file(descriptor: int, path: str) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
        pid, host = int(holder["pid"]), str(holder["host"])
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
    finally:
        os.close(descriptor)
    if pid == os.getpid() and host == socket.gethostname():
        return "another hook of this process, which is not closed"
    return f"process {pid} on {host[:255]!r}"
