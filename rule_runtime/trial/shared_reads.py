"""Caches the objects of a stored run for several readers, so that each is read once."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from hook_layer.format.paths import COLLECTIONS_PREFIX, INDEX_PREFIX
from hook_layer.storage.base import Buffers, ObjectNotFoundError, StorageError, Store
from rule_runtime.trial.step_index import StepFileCache

__all__ = ["SharedReads"]

_KEPT_BYTES: Final = 64 << 20
"""Bytes of parsed index files, and of other objects, that are cached by default."""
_MAX_RANGES: Final = 4096
_MAX_MISSING: Final = 4096
_LISTED: Final = (INDEX_PREFIX, COLLECTIONS_PREFIX)

_Range = tuple[int, int | None]


class SharedReads:
    """A store with a cache for several readers of the same run.

    It sees each object once: later or replaced objects are not seen. So use it to evaluate a run in
    its current state, not to follow one. The cache has a fixed size, and drops the least recently
    used objects. It is not thread-safe, except for reading ahead.

    Args:
        store: The store.
        kept_bytes: Bytes of parsed index files, and as many of other objects, that are cached.

    Attributes:
        num_bytes_read: Number of bytes read from the store so far.
        step_files: The index files that were parsed.
    """

    def __init__(self, store: Store, kept_bytes: int = _KEPT_BYTES) -> None:
        self._store = store
        self._kept_bytes = kept_bytes
        self.num_bytes_read = 0
        self._listings: dict[str, _Listing] = {}
        self.step_files = StepFileCache(kept_bytes)
        self._ranges: OrderedDict[tuple[str, _Range], bytes] = OrderedDict()
        self._range_bytes = 0
        self._missing: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """URI of the store, ending in "/"."""
        return self._store.uri

    @property
    def num_bytes_kept(self) -> int:
        """Number of bytes of cached files."""
        return self.step_files.num_bytes + self._range_bytes

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the object's bytes from `start`, at most `length` of them.

        Raises:
            ObjectNotFoundError: No object has this key, or had none when first requested.
            StorageError: The store fails.
        """
        if key in self._missing:
            raise ObjectNotFoundError(self._missing[key])
        wanted = (key, (start, length))
        known = self._ranges.get(wanted)
        if known is not None:
            self._ranges.move_to_end(wanted)
            return known
        try:
            data = self._store.get(key, start, length)
        except ObjectNotFoundError as error:
            if len(self._missing) < _MAX_MISSING:
                self._missing[key] = str(error)
            raise
        self.num_bytes_read += len(data)
        if not key.startswith(INDEX_PREFIX):  # those are cached parsed
            self._keep(wanted, data)
        return data

    def _keep(self, wanted: tuple[str, _Range], data: bytes) -> None:
        if len(data) > self._kept_bytes // 4:  # one of these would evict all others
            return
        self._ranges[wanted] = data
        self._range_bytes += len(data)
        while self._range_bytes > self._kept_bytes or len(self._ranges) > _MAX_RANGES:
            _, oldest = self._ranges.popitem(last=False)
            self._range_bytes -= len(oldest)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        if prefix not in _LISTED:
            return self._store.list(prefix, after)
        if prefix not in self._listings:
            self._listings[prefix] = _Listing(self._store, prefix)
        return self._listings[prefix].behind(after)

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        return key not in self._missing and self._store.exists(key)

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        return self._store.size(key)

    def put(self, key: str, data: Buffers) -> None:  # noqa: ARG002 - as every store
        """Refuse: readers would not see the written object."""
        raise _refused(key)

    def delete(self, key: str) -> None:
        """Refuse: readers would still see the removed object."""
        raise _refused(key)


class _Listing:
    """The keys of a listing, read from the store on demand."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._keys: list[str] = []
        self._rest: Iterator[str] | None = None

    def behind(self, after: str | None) -> Iterator[str]:
        at = 0 if after is None else bisect_right(self._keys, after)
        while at < len(self._keys) or self._has_next():
            key = self._keys[at]
            at += 1
            if after is None or key > after:
                yield key

    def _has_next(self) -> bool:
        if self._rest is None:
            self._rest = self._store.list(self._prefix, self._keys[-1] if self._keys else None)
        try:
            key = next(self._rest, None)
        except StorageError:
            self._rest = None  # it continues there for later readers
            raise
        if key is not None:
            self._keys.append(key)
        return key is not None


def _refused(key: str) -> TypeError:
    return TypeError(f"{key}: a store that is shared by readers is only read")
