"""Which tensors belong to a collection, from the collections files that the workers wrote."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from hook_layer.format.collections_file import CollectionsFile, parse_collections
from hook_layer.format.errors import FormatError
from hook_layer.format.paths import (
    COLLECTIONS_PREFIX,
    collections_key,
    parse_collections_key,
)
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = ["DEFAULT_REGEXES", "CollectionReader", "membership"]

DEFAULT_REGEXES: Final = {
    "all": (".*",),
    "biases": ("^(?!gradient).*bias",),
    "gradients": ("^gradient",),
    "losses": ("[Ll]oss_(?!input).*output",),
    "weights": ("^(?!gradient).*weight",),
}
"""What the built-in collections hold where no collections file says otherwise (PyTorch's)."""

_logger = logging.getLogger(__name__)


class CollectionReader:
    """The collections files of a trial.

    A file names the tensors that its worker had seen when it was written, so it may be written
    again with more of them; `load(worker, again=True)` reads it anew.

    Args:
        store: The trial's root.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: dict[str, CollectionsFile | None] = {}

    def load(self, worker: str, *, again: bool = False) -> CollectionsFile | None:
        """Return a worker's collections file, None if it does not exist or cannot be parsed.

        Args:
            worker: Name of the worker.
            again: True to read the file even if it was read before.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        if again or self._files.get(worker) is None:
            self._files[worker] = self._read(collections_key(worker))
        return self._files[worker]

    def workers(self) -> list[str]:
        """Return the workers that wrote a collections file, by one listing."""
        names = map(_worker_of, self._store.list(COLLECTIONS_PREFIX))
        return sorted({name for name in names if name is not None})

    def _read(self, key: str) -> CollectionsFile | None:
        try:
            return parse_collections(self._store.get(key), file=f"{self._store.uri}{key}")
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            _logger.warning("ignored a collections file: %s", error)
            return None


def membership(file: CollectionsFile | None, collection: str) -> Callable[[str], bool]:
    """Return the test whether a tensor belongs to a collection.

    A tensor belongs if the file names it, or if one of the collection's regular expressions is
    found in its name: the names hold only what had been seen when the file was written.

    Args:
        file: The collections file, if there is one.
        collection: Name of the collection.
    """
    entry = None if file is None else file.collections.get(collection)
    patterns = DEFAULT_REGEXES.get(collection, ()) if entry is None else entry.include_regex
    if collection == "all" and not patterns:
        patterns = DEFAULT_REGEXES["all"]
    names = frozenset(() if entry is None else entry.tensor_names)
    searches = [search for pattern in patterns if (search := _search(pattern)) is not None]
    return lambda name: name in names or any(search(name) for search in searches)


def _worker_of(key: str) -> str | None:
    try:
        return parse_collections_key(key)
    except FormatError as error:
        _logger.warning("ignored an object among the collections files: %s", error)
        return None


def _search(pattern: str) -> Callable[[str], object] | None:
    try:
        return re.compile(pattern).search
    except (re.error, RecursionError, OverflowError) as error:
        _logger.warning("ignored the regular expression %.80r of a collection: %s", pattern, error)
        return None
