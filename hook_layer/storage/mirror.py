"""A store with a second copy, such as S3 and a local folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from hook_layer.storage.base import Buffers, Store, check_key, open_store

__all__ = ["MirrorStore", "reopened"]

logger = logging.getLogger("stepwatch")


class MirrorStore:
    """Writes to two stores, of which the first one is authoritative.

    Only the first store is read, and only its errors are raised. Errors of the second are logged
    once.
    """

    def __init__(self, primary: Store, copy: Store) -> None:
        self.primary = primary
        self.copy = copy
        self._has_complained = False

    @property
    def uri(self) -> str:
        """URI of the authoritative store."""
        return self.primary.uri

    def put(self, key: str, data: Buffers) -> None:
        """Store an object whole in both stores; in the second even if the first one fails."""
        check_key(key)
        try:
            self.primary.put(key, data)
        finally:
            self._in_copy("storing", key, lambda: self.copy.put(key, data))

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`."""
        return self.primary.get(key, start, length)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        return self.primary.list(prefix, after)

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        return self.primary.exists(key)

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        return self.primary.size(key)

    def delete(self, key: str) -> None:
        """Remove the object from both stores, if it exists."""
        check_key(key)
        try:
            self.primary.delete(key)
        finally:
            self._in_copy("removing", key, lambda: self.copy.delete(key))

    def _in_copy(self, what: str, key: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                logger.warning(
                    "%s %s in %s failed; %s is complete without it: %s",
                    what,
                    key,
                    self.copy.uri,
                    self.primary.uri,
                    error,
                )


def reopened(store: Store, rename: Callable[[str], str]) -> Store:
    """Return the store at another URI, with a second copy if this one has one.

    Args:
        store: The store.
        rename: Maps the old URI to the new one; both end in "/".
    """
    if isinstance(store, MirrorStore):
        return MirrorStore(reopened(store.primary, rename), reopened(store.copy, rename))
    return open_store(rename(store.uri))
