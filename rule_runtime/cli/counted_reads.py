"""A store that reports the progress of reading index files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hook_layer.format.paths import INDEX_PREFIX
from hook_layer.storage.base import Buffers, Store

__all__ = ["CountedReads"]


class CountedReads:
    """A store that reports each read of an index file; the first listing gives the total."""

    def __init__(
        self, store: Store, on_start: Callable[[int], None], on_read: Callable[[str], None]
    ) -> None:
        self._store = store
        self._on_start = on_start
        self._on_read = on_read
        self._has_started = False

    @property
    def uri(self) -> str:
        """URI of the store, ending in "/"."""
        return self._store.uri

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the object's bytes from `start`, at most `length` of them."""
        data = self._store.get(key, start, length)
        if key.startswith(INDEX_PREFIX):
            self._on_read(key)
        return data

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        count = 0
        for key in self._store.list(prefix, after):
            count += 1
            yield key
        if prefix == INDEX_PREFIX and not self._has_started:
            self._has_started = True
            self._on_start(count)

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        return self._store.exists(key)

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        return self._store.size(key)

    def put(self, key: str, data: Buffers) -> None:
        """Store an object whole."""
        self._store.put(key, data)

    def delete(self, key: str) -> None:
        """Remove the object; does nothing if it does not exist."""
        self._store.delete(key)
