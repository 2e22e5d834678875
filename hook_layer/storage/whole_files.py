"""Reading and writing files of this machine, with few calls and without copies."""

from __future__ import annotations

import contextlib
import errno
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from hook_layer.storage.base import Buffers

__all__ = ["FolderNotMadeError", "create_file", "read_exactly", "reserve", "write_all"]

_MAX_ATTEMPTS: Final = 3
"""How often a file is opened whose folder somebody else may remove at the same time."""
_MAX_VECTOR: Final = 512  # buffers a call; the system's limit is 1,024
_MAX_BATCH_BYTES: Final = 512 << 10
_MIN_RESERVED_BYTES: Final = 1 << 20
_NOT_SUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_MOUNTS: Final = "/proc/self/mountinfo"
_RESERVING_FILE_SYSTEMS: Final = frozenset(("ext4", "xfs"))
"""Those that write faster what was reserved before; others emulate it, or lose time."""


class FolderNotMadeError(FileNotFoundError):
    """A place in which the system makes no folder."""


def create_file(path: str) -> int:
    """Open a new file for writing, and return its descriptor; its folder is made if need be.

    Raises:
        FolderNotMadeError: No folder can be made there.
        FileNotFoundError: The folder was removed again and again.
        OSError: The file or its folder cannot be made for another reason.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    for is_last in [False] * (_MAX_ATTEMPTS - 1) + [True]:
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:  # noqa: PERF203 - mostly there is one turn
            _make_folder(os.path.dirname(path), is_last=is_last)  # noqa: PTH120
    return os.open(path, flags, 0o666)


def write_all(descriptor: int, data: Buffers) -> None:
    """Write buffers soon after they were handed out: they are in the core's cache then."""
    if isinstance(data, bytes):
        data = (data,)
    batch: list[bytes | memoryview] = []
    num_bytes = 0
    for buffer in data:
        view = buffer if type(buffer) is bytes else memoryview(buffer).cast("B")
        batch.append(view)
        num_bytes += len(view)
        if num_bytes >= _MAX_BATCH_BYTES or len(batch) == _MAX_VECTOR:
            _write_batch(descriptor, batch, num_bytes)
            batch, num_bytes = [], 0
    if num_bytes:
        _write_batch(descriptor, batch, num_bytes)


def reserve(descriptor: int, num_bytes: int) -> None:
    """Let a new file have its disk space at once, where that makes writing it faster.

    Raises:
        OSError: There is not so much space.
    """
    if num_bytes >= _MIN_RESERVED_BYTES:
        device = os.fstat(descriptor).st_dev
        if _file_system_type(os.major(device), os.minor(device)) in _RESERVING_FILE_SYSTEMS:
            try:
                os.posix_fallocate(descriptor, 0, num_bytes)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise


def read_exactly(descriptor: int, length: int, start: int) -> bytes:
    """Return bytes of a file that has them; one call may return fewer than it was asked for."""
    data = os.pread(descriptor, length, start) if length else b""
    if len(data) in (0, length):
        return data
    parts = [data]
    while parts[-1] and (have := sum(map(len, parts))) < length:
        parts.append(os.pread(descriptor, length - have, start + have))
    return b"".join(parts)


def _make_folder(path: str, *, is_last: bool) -> None:
    """Make a folder; that one above it is gone, or it is itself, is believed the last time only."""
    try:
        os.mkdir(path)  # noqa: PTH102 - mostly the one above is there; to look first takes time
    except OSError:
        try:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        except FileNotFoundError as error:
            if is_last:
                raise FolderNotMadeError(error.errno, error.strerror, path) from error
        except FileExistsError:
            if is_last:
                raise


def _write_batch(descriptor: int, batch: list[bytes | memoryview], num_bytes: int) -> None:
    written = os.writev(descriptor, batch)
    if written == num_bytes:
        return
    for buffer in batch:  # a signal, or a file that may grow no further
        rest = memoryview(buffer)[written:]
        written = max(written - len(buffer), 0)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


@lru_cache
def _file_system_type(major: int, minor: int) -> str:
    """Return the type of the file system on a device, empty if that cannot be found out."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(_MOUNTS).read_text(errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            if left.split()[2:3] == [f"{major}:{minor}"]:
                return right.partition(" ")[0]
    return ""
