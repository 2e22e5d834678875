"""Reads files from a folder that may contain malicious links."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from hook_layer.storage.base import ObjectNotFoundError, StorageError, check_key, checked_range
from hook_layer.storage.local import LocalStore
from hook_layer.storage.whole_files import read_exactly

__all__ = ["PlainFileStore", "check_owner", "read_plain_file"]

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_FOLDER_FLAGS: Final = _FLAGS | getattr(os, "O_DIRECTORY", 0)
_FILE_FLAGS: Final = _FLAGS | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)


class PlainFileStore(LocalStore):
    """A store in a folder whose files are read without following links."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the bytes of a plain file, from `start`."""
        checked_range(start, length)
        return read_plain_file(self._folder.rstrip("/") or "/", key, length, start)


def read_plain_file(folder: str, key: str, max_bytes: int | None = None, start: int = 0) -> bytes:
    """Read a file in a folder without following links.

    Args:
        folder: The folder.
        key: Path of the file in it, separated by "/".
        max_bytes: Maximum number of bytes to read; None: all.
        start: First byte to read.

    Raises:
        ObjectNotFoundError: The file does not exist.
        StorageError: The file or a folder in its path is a link or a special file, or is
            unreadable.
        ValueError: The key leads out of the folder.
    """
    *folders, name = check_key(key).split("/")
    place = f"{folder}/{key}"
    try:
        current = os.open(folder, _FOLDER_FLAGS)
        try:
            for part in folders:
                parent, current = current, os.open(part, _FOLDER_FLAGS | _NO_FOLLOW, dir_fd=current)
                os.close(parent)
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=current)
        finally:
            os.close(current)
        try:
            return _content(descriptor, max_bytes, start)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise ObjectNotFoundError(error.errno, f"{place} does not exist") from error
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
        reason = "not a plain file: links are not followed" if is_link else error.strerror or error
        raise StorageError(error.errno, f"{place}: {reason}") from error


def check_owner(path: str) -> None:
    """Reject a folder of another user, unless this process runs as root.

    Raises:
        PermissionError: Another user owns the folder.
    """
    if not hasattr(os, "geteuid"):
        return
    with suppress(FileNotFoundError):
        owner, user = os.stat(path).st_uid, os.geteuid()  # noqa: PTH116
        if user not in (0, owner):
            raise PermissionError(
                f"{path} belongs to the user {owner}, and you are {user}; let that user deliver it"
            )


def _content(descriptor: int, max_bytes: int | None, start: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    available = max(status.st_size - start, 0)
    length = available if max_bytes is None else min(available, max_bytes)
    return read_exactly(descriptor, length, start)
