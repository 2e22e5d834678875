"""A lock on a file, which the system takes away when its process ends, however it ends."""

from __future__ import annotations

import errno
import os
import weakref
from contextlib import suppress
from typing import Final

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["HAS_LOCKS", "FileLock", "is_locked"]

HAS_LOCKS: Final = fcntl is not None
"""Whether this system has such locks; without them everybody gets one."""

_HELD: Final = (errno.EWOULDBLOCK, errno.EACCES)


class FileLock:
    """An open file that is locked; made by `take`.

    The lock is one of this open file: a second one in the same process has to wait for it, too. A
    fork of the process does not hold it.

    Attributes:
        descriptor: The open file, None once it was released.
    """

    _taken: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._taken.add(self)

    @classmethod
    def take(cls, descriptor: int) -> FileLock | None:
        """Lock an open file; None, and it stays open, if another open file has the lock.

        Raises:
            OSError: There are no locks on this file system, or too many; the file stays open.
        """
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                return None
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Close the file, and so give the lock back; safe at any time."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    @classmethod
    def _forked(cls) -> None:
        """Close the copies of the descriptors, which would keep the locks behind their process."""
        for lock in cls._taken:
            lock.release()


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a process has the lock of a file, so that it has not ended."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if fcntl is not None:  # shared, so that several may ask at once
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileLock._forked)  # noqa: SLF001 - of this module
