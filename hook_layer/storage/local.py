"""A store in a local folder."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from hook_layer.storage.base import (
    Buffers,
    ObjectNotFoundError,
    StorageError,
    StoreRefusedError,
    check_key,
    checked_range,
)
from hook_layer.storage.whole_files import (
    FolderNotMadeError,
    create_file,
    read_exactly,
    reserve,
    write_all,
)

__all__ = ["LocalStore"]

_TEMPORARY_SUFFIX = ".tmp"
_REFUSALS = {
    errno.EACCES: "give the process write permission there",
    errno.EPERM: "give the process write permission there",
    errno.EROFS: "mount it writable, or give another folder",
    errno.EFBIG: "the file is larger than the system allows (ulimit -f); save fewer tensors a step",
    errno.EISDIR: "there is a folder of this name; remove it",
    errno.ENOTDIR: "a part of the path is a file; give another folder",
    errno.EEXIST: "a part of the path is a file; give another folder",
    errno.ENOENT: "the folder cannot be created there; give another one",
    errno.ENAMETOOLONG: "the name is too long for this file system; give another folder",
}
"""Errors that waiting does not resolve, and their solutions."""


class LocalStore:
    """A store in a folder, which is created with the first object.

    Objects are written to a temporary name and renamed, so that readers and agents that copy the
    folder never see a part.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as the user wrote them
        self.uri = f"file://{quote(self.path.as_posix()).rstrip('/')}/"
        self._folder = f"{self.path.as_posix().rstrip('/')}/"
        self._numbers = itertools.count()

    @classmethod
    def from_uri(cls, uri: str) -> LocalStore:
        """Return the store of a `file://` URI.

        Raises:
            ValueError: The URI names another machine.
        """
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{uri!r} names the machine {parts.netloc!r}; use file:///path")
        return cls(unquote(parts.path))

    def put(self, key: str, data: Buffers) -> None:
        """Store an object whole."""
        # Avoids pathlib and file objects, which take longer than writing a small file.
        path = f"{self._folder}{check_key(key)}"
        # Without the suffix, so that TensorBoard and others ignore it.
        name = f"{os.path.splitext(path)[0]}.{os.getpid()}-{next(self._numbers)}"  # noqa: PTH122
        temporary = f"{name}{_TEMPORARY_SUFFIX}"
        try:
            descriptor = create_file(temporary)
            try:
                try:
                    reserve(descriptor, getattr(data, "nbytes", 0))
                    write_all(descriptor, data)
                finally:
                    os.close(descriptor)
                os.replace(temporary, path)  # noqa: PTH105
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
        except OSError as error:
            raise self._put_error(key, error) from error

    def create(self, key: str, data: bytes) -> bool:
        """Store an object unless the key exists; return whether it was stored."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._put_error(key, error) from error
        return True

    def append(self, key: str, data: Buffers, size: int) -> None:
        """Write after an object's first `size` bytes, replacing the rest."""
        path = f"{self._folder}{check_key(key)}"
        with self._reported(key):
            descriptor = os.open(path, os.O_WRONLY) if size else create_file(path)
            try:
                _append(descriptor, data, size)
            finally:
                os.close(descriptor)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`."""
        checked_range(start, length)
        # Avoids pathlib and file objects, which take longer than reading a small file.
        path = f"{self._folder}{check_key(key)}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # A length from a damaged index must not allocate more memory than the file's size.
                available = max(os.fstat(descriptor).st_size - start, 0)
                wanted = available if length is None else min(length, available)
                return read_exactly(descriptor, wanted, start)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error(key, error) from error

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        with self._reported(prefix):
            yield from self._walk(self.path, "", prefix, after)

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        with self._reported(key):
            return self._path(key).is_file()

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        with self._reported(key):
            return self._path(key).stat().st_size

    def delete(self, key: str) -> None:
        """Remove the object, if it exists."""
        with self._reported(key):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.path / check_key(key)

    def _walk(self, folder: Path, base: str, prefix: str, after: str | None) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                found = [(f"{e.name}/" if e.is_dir() else e.name, e.path) for e in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        # With a trailing "/", folders sort in the order of their keys.
        for name, path in sorted(found):
            key = base + name
            if name.endswith("/"):
                if not (key.startswith(prefix) or prefix.startswith(key)):
                    continue
                if after is not None and key < after and not after.startswith(key):
                    continue
                yield from self._walk(Path(path), key, prefix, after)
            elif name.endswith(_TEMPORARY_SUFFIX):
                continue
            elif key.startswith(prefix) and (after is None or key > after):
                yield key

    @contextlib.contextmanager
    def _reported(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(key, error) from error

    def _put_error(self, key: str, error: OSError) -> StorageError:
        hint = _REFUSALS.get(error.errno or 0)
        if isinstance(error, FileNotFoundError) and not isinstance(error, FolderNotMadeError):
            hint = None  # the folder or the file was removed meanwhile
        kind = StorageError if hint is None else StoreRefusedError
        text = f"{self.uri}{key}: {error.strerror or error}" + (f"; {hint}" if hint else "")
        return kind(error.errno, text)

    def _error(self, key: str, error: OSError) -> StorageError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            return ObjectNotFoundError(f"{self.uri}{key} does not exist")
        return StorageError(error.errno, f"{self.uri}{key}: {error.strerror or error}")


def _append(descriptor: int, data: Buffers, size: int) -> None:
    """Write after the first `size` bytes of a file, completely or not at all."""
    if os.fstat(descriptor).st_size < size:
        raise OSError(errno.EINVAL, f"some of its {size} bytes are missing")
    try:
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        write_all(descriptor, data)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
