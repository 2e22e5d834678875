"""Reads small files of a trial, with protection against large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from hook_layer.storage.base import Store

__all__ = ["read_small"]

_Content_co = TypeVar("_Content_co", covariant=True)


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
