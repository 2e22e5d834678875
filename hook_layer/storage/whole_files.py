"""Reads and writes local files, with few system calls and without copies."""

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
"""Attempts to open a file whose folder another process may remove at the same time."""
_MAX_VECTOR: Final = 512  # buffers per call; the system's limit is 1,024
_MAX_BATCH_BYTES: Final = 512 << 10
_MIN_RESERVED_BYTES: Final = 1 << 20
_NOT_SUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_MOUNTS: Final = "/proc/self/mountinfo"
_RESERVING_FILE_SYSTEMS: Final = frozenset(("ext4", "xfs"))
"""File systems that write reserved space faster; others emulate reserving, or are slower."""


class FolderNotMadeError(FileNotFoundError):
    """The system refuses to create a folder."""


def create_file(path: str) -> int:
    """Create a file and, if needed, its folder; return the file descriptor for writing.

    Raises:
        FolderNotMadeError: The folder cannot be created there.
        FileNotFoundError: The folder was removed repeatedly.
        OSError: The file or its folder cannot be created for another reason.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    for is_last in [False] * (_MAX_ATTEMPTS - 1) + [True]:
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:  # noqa: PERF203 - mostly there is one turn
            _make_folder(os.path.dirname(path), is_last=is_last)  # noqa: PTH120
    return os.open(path, flags, 0o666)


def write_all(descriptor: int, data: Buffers) -> None:
    """Write each buffer soon after it is yielded, while it is in the CPU cache."""
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
    """Reserve disk space for a new file, on file systems where that makes writing faster.

    Raises:
        OSError: There is not enough space.
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
    """Read `length` bytes, or fewer at the end of the file; one system call may return fewer."""
    data = os.pread(descriptor, length, start) if length else b""
    if len(data) in (0, length):
        return data
    parts = [data]
    while parts[-1] and (have := sum(map(len, parts))) < length:
        parts.append(os.pread(descriptor, length - have, start + have))
    return b"".join(parts)


def _make_folder(path: str, *, is_last: bool) -> None:
    """Create a folder; ignore concurrent removal except in the last attempt."""
    try:
        os.mkdir(path)  # noqa: PTH102 - mostly the parent exists; checking first takes time
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
    for buffer in batch:  # after a signal, or if the file cannot grow further
        rest = memoryview(buffer)[written:]
        written = max(written - len(buffer), 0)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


@lru_cache
def _file_system_type(major: int, minor: int) -> str:
    """Return the type of the file system on a device; empty if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(_MOUNTS).read_text(errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            if left.split()[2:3] == [f"{major}:{minor}"]:
                return right.partition(" ")[0]
    return ""
