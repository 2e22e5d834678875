"""A file lock that the system releases when its process ends."""

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
"""Whether this system has file locks; without them, every attempt succeeds."""

_HELD: Final = (errno.EWOULDBLOCK, errno.EACCES)


class FileLock:
    """A locked open file, created by `take`.

    The lock belongs to this open file: a second one in the same process cannot take it either. A
    fork of the process does not hold it.

    Attributes:
        descriptor: The open file; None after release.
    """

    _taken: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._taken.add(self)

    @classmethod
    def take(cls, descriptor: int) -> FileLock | None:
        """Lock an open file; return None (and keep it open) if another open file has the lock.

        Raises:
            OSError: This file system has no locks, or there are too many; the file stays open.
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
        """Close the file, which releases the lock; safe at any time."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    @classmethod
    def _forked(cls) -> None:
        """Close the copied descriptors, which would keep the locks after their process ends."""
        for lock in cls._taken:
            lock.release()


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a running process has the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if fcntl is not None:  # shared, so that several processes may check at once
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileLock._forked)  # noqa: SLF001 - of this module
