"""Finds the tensors of a collection from the collections files of the workers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

from hook_layer.format.collections_file import (
    MAX_COLLECTIONS_BYTES,
    CollectionsFile,
    parse_collections,
)
from hook_layer.format.errors import FormatError
from hook_layer.format.known_collections import OF_LOGGED
from hook_layer.format.paths import (
    COLLECTIONS_PREFIX,
    collections_key,
    parse_collections_key,
)
from hook_layer.storage.base import ObjectNotFoundError, Store, read_small
from rule_runtime.trial.name_pattern import NameMatcher
from rule_runtime.trial.step_index import is_remote

__all__ = ["DEFAULT_REGEXES", "CollectionReader", "members"]

DEFAULT_REGEXES: Final = {
    "all": (".*",),
    "biases": ("^(?!gradient).*bias",),
    "gradients": ("^gradient",),
    "losses": ("[Ll]oss_(?!input).*output",),
    "weights": ("^(?!gradient).*weight",),
}
"""Patterns of the built-in collections for files that define none (as in PyTorch)."""

_OF_MODELS: Final = ("biases", "weights")
_PARALLEL_GETS: Final = 8

_logger = logging.getLogger(__name__)


class CollectionReader:
    """The collections files of a trial.

    A worker rewrites its file when it learns more, before the step in which it did.
    `load(worker, again=True)` rereads it, and `forget()` has all of them reread.

    Attributes:
        workers_seen: The workers in the last listing.
        generation: How often the files were forgotten.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.workers_seen: frozenset[str] = frozenset()
        self.generation = 0
        self._files: dict[str, CollectionsFile] = {}
        self._are_current: set[str] = set()

    @cached_property
    def matcher(self) -> NameMatcher:
        """Searches for the collections' regular expressions, all within one limit of time."""
        return NameMatcher()

    def load(self, worker: str, *, again: bool = False) -> CollectionsFile | None:
        """Return a worker's collections file; None if none that can be parsed was ever there.

        The object is the same until the file changes.
        """
        if again or worker not in self._are_current:
            found = self._read(worker)
            if found is not None:
                self._are_current.add(worker)
                if found != self._files.get(worker):
                    self._files[worker] = found
        return self._files.get(worker)

    def forget(self) -> None:
        """Reread the files when they are needed next."""
        self.generation += 1
        self._are_current.clear()

    def load_all(self, workers: Iterable[str], *, again: bool = False) -> list[CollectionsFile]:
        """Return the existing collections files of workers; reads several at a time."""
        wanted = sorted(workers)
        if len(wanted) <= 1 or not is_remote(self._store):
            files = [self.load(worker, again=again) for worker in wanted]
        else:
            with ThreadPoolExecutor(max_workers=min(_PARALLEL_GETS, len(wanted))) as pool:
                files = list(pool.map(lambda worker: self.load(worker, again=again), wanted))
        return [file for file in files if file is not None]

    def workers(self) -> list[str]:
        """Return the workers that wrote a collections file, by one listing."""
        names = map(_worker_of, self._store.list(COLLECTIONS_PREFIX))
        found = sorted({name for name in names if name is not None})
        self.workers_seen = frozenset(found)
        return found

    def num_workers(self, workers: Iterable[str]) -> int | None:
        """Return the number of writing workers from the first existing file; None without any."""
        files = map(self.load, workers)
        return next((file.num_workers for file in files if file is not None), None)

    def _read(self, worker: str) -> CollectionsFile | None:
        key = collections_key(worker)
        try:
            return read_small(self._store, key, MAX_COLLECTIONS_BYTES, parse_collections)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            _logger.warning("ignored a collections file: %s", error)
            return None


def members(
    file: CollectionsFile | None, collection: str, names: Collection[str], matcher: NameMatcher
) -> set[str]:
    """Return the tensors that belong to a collection.

    A tensor belongs if the file names it, or if its name matches one of the collection's regular
    expressions. The file names only tensors that existed when it was written. A collection missing
    from the file is empty, such as `weights` in a run of XGBoost. Logged scalars such as
    `scalar/weight_decay` are no weights, whatever their names match.
    """
    entry = None if file is None else file.collections.get(collection)
    patterns = () if entry is None else entry.include_regex
    if file is None or (collection == "all" and not patterns):
        patterns = DEFAULT_REGEXES.get(collection, ())
    listed = frozenset(() if entry is None else entry.tensor_names)
    found = {name for name in names if name in listed}
    rest = [name for name in names if name not in found]
    if collection in _OF_MODELS:
        rest = [name for name in rest if not name.startswith(OF_LOGGED)]
    for pattern in patterns if rest else ():
        found |= matcher.found_in(pattern, rest)
    return found


def _worker_of(key: str) -> str | None:
    try:
        return parse_collections_key(key)
    except FormatError as error:
        _logger.warning("ignored an object among the collections files: %s", error)
        return None
