"""A store in this process's memory, shared by name."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from hook_layer.storage.base import (
    Buffers,
    ObjectNotFoundError,
    check_key,
    checked_range,
    joined,
)

__all__ = ["MemoryStore"]

_SHARED: dict[str, MemoryStore] = {}
_SHARED_LOCK = threading.Lock()


class MemoryStore:
    """A store in memory.

    Args:
        name: Part of the URI; `memory://<name>` always opens the same store.
    """

    def __init__(self, name: str = "store") -> None:
        self.uri = f"memory://{name.strip('/')}/"
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []
        self._lock = threading.Lock()

    @classmethod
    def from_uri(cls, uri: str) -> MemoryStore:
        """Return this process's store with the URI; create it on first use."""
        name = uri.removeprefix("memory://").strip("/")
        with _SHARED_LOCK:
            return _SHARED.setdefault(name, cls(name))

    def put(self, key: str, data: Buffers) -> None:
        """Store an object whole."""
        content = joined(data)
        with self._lock:
            self._put(check_key(key), content)

    def create(self, key: str, data: bytes) -> bool:
        """Store an object unless the key exists; return whether it was stored."""
        with self._lock:
            is_free = check_key(key) not in self._objects
            if is_free:
                self._put(key, data)
        return is_free

    def _put(self, key: str, content: bytes) -> None:
        if key not in self._objects:
            self._keys.insert(bisect_left(self._keys, key), key)
        self._objects[key] = content

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`."""
        checked_range(start, length)
        content = self._find(key)
        return content[start : None if length is None else start + length]

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in order."""
        with self._lock:
            first = bisect_left(self._keys, prefix)
            if after is not None:
                first = max(first, bisect_right(self._keys, after))
            keys = self._keys[first:]
        for key in keys:
            if not key.startswith(prefix):
                return
            yield key

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        return check_key(key) in self._objects

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        return len(self._find(key))

    def delete(self, key: str) -> None:
        """Remove the object, if it exists."""
        with self._lock:
            if self._objects.pop(check_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def _find(self, key: str) -> bytes:
        try:
            return self._objects[check_key(key)]
        except KeyError:
            raise ObjectNotFoundError(f"{self.uri}{key} does not exist") from None
