"""Reading the small files of a trial, whose writers are not trusted to keep them small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from hook_layer.storage.base import Store

__all__ = ["read_small"]

_Content_co = TypeVar("_Content_co", covariant=True)


class _Parser(Protocol[_Content_co]):
    def __call__(self, data: bytes, *, file: str) -> _Content_co: ...


def read_small(store: Store, key: str, max_bytes: int, parse: _Parser[_Content_co]) -> _Content_co:
    """Return what a file says, read with one request and no further than needed to refuse it.

    Args:
        store: The trial's root.
        key: The file's key.
        max_bytes: Longest file that `parse` takes.
        parse: Parses it; raises an error of the format for one that is longer, or is none.

    Raises:
        ObjectNotFoundError: There is no such file.
        StorageError: The storage failed.
    """
    return parse(store.get(key, 0, max_bytes + 1), file=store.uri + key)
