"""A store in a folder of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from hook_layer.storage.base import (
    Buffers,
    ObjectNotFoundError,
    StorageError,
    check_key,
    checked_range,
)

__all__ = ["LocalStore"]

_TEMPORARY_SUFFIX = ".tmp"
_MAX_VECTOR = 512  # buffers a call; the system's limit is 1,024


class LocalStore:
    """A store in a folder, which is made when the first object is put.

    Objects are written beside their name and renamed, so that readers never see a part, and an
    agent that copies the folder elsewhere does not either.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as the user wrote them
        self.uri = f"file://{quote(self.path.as_posix()).rstrip('/')}/"
        self._folder = f"{self.path.as_posix().rstrip('/')}/"
        self._made: set[Path] = set()
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
        target = self._path(key)
        buffers = [data] if isinstance(data, bytes) else data
        with self._reported(key):
            self._make(target.parent)
            descriptor, temporary = self._create_beside(target)
            try:
                try:
                    _write_all(descriptor, buffers)
                finally:
                    os.close(descriptor)
                os.replace(temporary, target)  # noqa: PTH105 - a rename within one folder
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the object's bytes from `start`, at most `length` of them."""
        checked_range(start, length)
        # Without pathlib and file objects, which take longer than reading a small file.
        path = f"{self._folder}{check_key(key)}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # A length out of a damaged index must not make this allocate more than there is.
                available = max(os.fstat(descriptor).st_size - start, 0)
                wanted = available if length is None else min(length, available)
                return _read_exactly(descriptor, wanted, start)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error(key, error) from error

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort behind `after`, in byte order."""
        with self._reported(prefix):
            yield from self._walk(self.path, "", prefix, after)

    def exists(self, key: str) -> bool:
        """Tell whether an object has this key."""
        return self._path(key).is_file()

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        with self._reported(key):
            return self._path(key).stat().st_size

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens when there is none."""
        with self._reported(key):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.path / check_key(key)

    def _make(self, folder: Path) -> None:
        if folder not in self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)

    def _create_beside(self, target: Path) -> tuple[int, str]:
        temporary = f"{target}.{os.getpid()}-{next(self._numbers)}{_TEMPORARY_SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            return os.open(temporary, flags, 0o666), temporary
        except FileNotFoundError:  # somebody removed the folder since it was made
            target.parent.mkdir(parents=True, exist_ok=True)
            return os.open(temporary, flags, 0o666), temporary

    def _walk(self, folder: Path, base: str, prefix: str, after: str | None) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                found = [(f"{e.name}/" if e.is_dir() else e.name, e.path) for e in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        # With the "/" a folder sorts among its neighbours as its keys do.
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

    def _error(self, key: str, error: OSError) -> StorageError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            return ObjectNotFoundError(f"{self.uri}{key} does not exist")
        return StorageError(error.errno, f"{self.uri}{key}: {error.strerror or error}")


def _read_exactly(descriptor: int, length: int, start: int) -> bytes:
    """Return bytes of a file that has them; one call may return fewer than it was asked for."""
    data = os.pread(descriptor, length, start) if length else b""
    if len(data) in (0, length):
        return data
    parts = [data]
    while parts[-1] and (have := sum(map(len, parts))) < length:
        parts.append(os.pread(descriptor, length - have, start + have))
    return b"".join(parts)


def _write_all(descriptor: int, buffers: Sequence[bytes | memoryview]) -> None:
    views = [view for buffer in buffers if (view := memoryview(buffer).cast("B"))]
    first = 0
    while first < len(views):
        written = os.writev(descriptor, views[first : first + _MAX_VECTOR])
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]
