"""One writer for a local folder: a second one would write files of the same names.

Two processes that know nothing of each other (two trainings by mistake, or workers that no process
group makes known) would both be `worker_0`. The first one locks a file in the folder; the system
takes the lock away when that process ends, however it ends. A second hook in the same process is
refused just so, until the first is closed. Nothing of the kind exists in S3.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import weakref
from contextlib import suppress
from typing import Final

from hook_layer.storage.base import Store
from hook_layer.storage.local import LocalStore

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["CLAIM_FILE", "FolderClaim"]

logger = logging.getLogger("stepwatch")

CLAIM_FILE: Final = "claim.smd"
_HELD: Final = (errno.EWOULDBLOCK, errno.EACCES)
_MAX_TRIES: Final = 10
_MAX_BYTES: Final = 1000


class FolderClaim:
    """A claim on the folder of a store; a store elsewhere, or a system without locks, grants all.

    Args:
        store: The trial's root.
    """

    _claims: Final[weakref.WeakSet[FolderClaim]] = weakref.WeakSet()

    def __init__(self, store: Store) -> None:
        self._path: str | None = None
        if fcntl is not None and isinstance(store, LocalStore):
            self._path = os.path.join(store.path, CLAIM_FILE)  # noqa: PTH118
        self._descriptor: int | None = None
        self._pid = os.getpid()

    def take(self) -> str | None:
        """Claim the folder.

        Returns:
            None if the claim holds, or nobody can tell; otherwise who holds one.
        """
        if self._path is None or self._descriptor is not None:
            return None
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120
            for _ in range(_MAX_TRIES):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                if not _lock(descriptor):
                    return _holder(descriptor)
                if _is_file(descriptor, self._path):
                    self._hold(descriptor)
                    return None
                os.close(descriptor)  # its holder removed it, just when it was opened
        except OSError as error:
            logger.debug("%s cannot be claimed: %s", self._path, error)
        return None

    def release(self) -> None:
        """Give the folder free; safe at any time, also without a claim."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            if os.getpid() == self._pid and self._path is not None:
                os.unlink(self._path)  # noqa: PTH108
        with suppress(OSError):
            os.close(descriptor)

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._claims.add(self)
        holder = {"pid": self._pid, "host": socket.gethostname()}
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)

    @classmethod
    def _forked(cls) -> None:
        """Close the copies of the descriptors, which would keep the locks behind their process."""
        for claim in cls._claims:
            claim.release()


def _lock(descriptor: int) -> bool:
    """Lock an open file; False, with the file closed, if another open file has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        os.close(descriptor)
        raise
    return True


def _is_file(descriptor: int, path: str) -> bool:
    """Tell whether an open file is still the one of this name."""
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FolderClaim._forked)  # noqa: SLF001 - of this module
