"""The protocol of a store, its errors, and opening a store by URI."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable
from urllib.parse import quote, unquote

__all__ = [
    "AppendStore",
    "Buffers",
    "CreateStore",
    "ObjectNotFoundError",
    "StorageError",
    "Store",
    "StoreRefusedError",
    "check_key",
    "checked_range",
    "joined",
    "open_store",
    "path_or_uri",
    "read_small",
]

Buffers: TypeAlias = "bytes | Iterable[bytes | memoryview]"
"""An object's content, in one piece or in several consecutive ones.

Pieces can be iterated several times.
"""

_Content_co = TypeVar("_Content_co", covariant=True)

_STORES: Final = {
    "file": "hook_layer.storage.local:LocalStore.from_uri",
    "memory": "hook_layer.storage.memory:MemoryStore.from_uri",
    "s3": "hook_layer.storage.s3:S3Store",
}
_MAX_KEY_BYTES: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_NAMES: Final = frozenset(("", ".", ".."))
"""Path components that change the folder."""


class StorageError(OSError):
    """A store is unreachable or refuses a request; the message names the store and the key."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """No object has this key."""


class StoreRefusedError(StorageError):
    """The store refuses a request until a person changes something, e.g. permissions."""


class Store(Protocol):
    """A folder of objects under keys such as `index/000000000/000000000012_worker_0.json`.

    Methods raise ValueError for a key that could lead outside the store, and StorageError if the
    store fails.
    """

    @property
    def uri(self) -> str:
        """URI of the store, ending in "/"."""
        ...

    def put(self, key: str, data: Buffers) -> None:
        """Store an object atomically: a reader sees the old or the new one, never a part."""
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`.

        Raises:
            ObjectNotFoundError: No object has this key.
        """
        ...

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        ...

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        ...

    def size(self, key: str) -> int:
        """Return the object's size in bytes.

        Raises:
            ObjectNotFoundError: No object has this key.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object, if it exists."""
        ...


@runtime_checkable
class CreateStore(Store, Protocol):
    """A store in which only the first of several writers creates a key."""

    def create(self, key: str, data: bytes) -> bool:
        """Store an object unless the key exists; return whether it was stored."""
        ...


@runtime_checkable
class AppendStore(Store, Protocol):
    """A store whose objects can grow."""

    def append(self, key: str, data: Buffers, size: int) -> None:
        """Write after an object's first `size` bytes, replacing the rest.

        Readers may see a part of the data while it is written, and none of it if that fails.

        Args:
            key: Its key.
            data: The data.
            size: Number of bytes to keep; 0 creates the object.

        Raises:
            ObjectNotFoundError: No object has this key, and `size` is not 0.
            StorageError: The object is shorter than `size`.
        """
        ...


def open_store(uri: str | os.PathLike[str]) -> Store:
    """Return the store at a path or a `file://`, `s3://` or `memory://` URI.

    Raises:
        ValueError: It names no folder, has a control character, or another scheme.
    """
    text = os.fspath(uri).strip()
    scheme, found, rest = text.partition("://")
    first = text.partition(":/")[0]
    if not text or (scheme == "file" and found and not rest):
        raise ValueError(f"{text!r} names no folder; give a path, or s3://bucket/prefix")
    if not found and first in _STORES and first != text:
        raise ValueError(f"{text[:120]!r} has one slash after {first}:, but needs {first}://")
    if _CONTROL.search(text):
        raise ValueError(f"{text[:120]!r} has a control character; give a path without it")
    if not found:
        path = os.path.abspath(text)  # noqa: PTH100 - "~" stays a name
        scheme, text = "file", f"file://{quote(path, errors='surrogateescape')}"
    if scheme not in _STORES:
        known = ", ".join(f"{name}://" for name in _STORES)
        raise ValueError(
            f"{text!r}: there is no store for {scheme}://; give a path or one of {known}"
        )
    module, _, factory = _STORES[scheme].partition(":")
    target: object = importlib.import_module(module)
    for name in factory.split("."):
        target = getattr(target, name)
    store: Store = target(text)  # type: ignore[operator]
    return store


def path_or_uri(store: Store) -> str:
    """Return the folder of a store as a path if it is local, and the store's URI otherwise."""
    scheme, _, rest = store.uri.partition("://")
    return (unquote(rest).rstrip("/") or "/") if scheme == "file" else store.uri


def check_key(key: str) -> str:
    """Return `key` if it stays inside any store.

    Raises:
        ValueError: The key is empty, absolute, too long, or has components that change the folder.
    """
    if (
        not _NO_NAMES.isdisjoint(key.split("/"))
        or "\\" in key
        or not key.isprintable()
        or len(key.encode("utf-8", "surrogatepass")) > _MAX_KEY_BYTES
    ):
        raise ValueError(f"{key[:120]!r} is not a key of a store; give a plain relative path")
    return key


def checked_range(start: int, length: int | None) -> None:
    """Reject an invalid range.

    Raises:
        ValueError: `start` or `length` is negative.
    """
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"a range must not be negative: start {start}, length {length}")


def joined(data: Buffers) -> bytes:
    """Return the content in one piece."""
    return data if isinstance(data, bytes) else b"".join(data)


class _Parser(Protocol[_Content_co]):
    def __call__(self, data: bytes, *, file: str) -> _Content_co: ...


def read_small(store: Store, key: str, max_bytes: int, parse: _Parser[_Content_co]) -> _Content_co:
    """Read and parse a file with one request, limited in size.

    Args:
        store: The trial's root.
        key: The file's key.
        max_bytes: Maximum file size that `parse` accepts.
        parse: Parses the content; raises an error of the format for a longer or invalid one.

    Raises:
        ObjectNotFoundError: The file does not exist.
        StorageError: The storage failed.
    """
    return parse(store.get(key, 0, max_bytes + 1), file=store.uri + key)
