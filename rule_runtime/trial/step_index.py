"""Lists the index files of a trial and loads them in parallel."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from typing import Final

from hook_layer.format.errors import FormatError
from hook_layer.format.index import MAX_INDEX_BYTES, IndexFile, parse_index
from hook_layer.format.paths import INDEX_PREFIX, IndexName, index_key, parse_index_key
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = [
    "StepFile",
    "StepFileCache",
    "is_remote",
    "iter_step_files",
    "list_index_files",
    "load_step_files",
]

_logger = logging.getLogger(__name__)

_PARALLEL_GETS: Final = 8
_LEAST_FILE_BYTES: Final = 1 << 10
"""Minimum size in the cache of a small or damaged file."""


@dataclass(frozen=True, eq=False)
class StepFile:
    """One index file: the data of one worker at one step.

    Attributes:
        key: Key relative to the trial's root.
        step: Global step.
        worker: Name of the worker.
        index: The parsed file; None if it could not be parsed.
        problem: Why it could not be parsed; otherwise None.
        num_bytes: Size of the file; 0 if it could not be parsed.
    """

    key: str
    step: int
    worker: str
    index: IndexFile | None
    problem: str | None = None
    num_bytes: int = 0


class StepFileCache:
    """Caches the parsed index files that were used last.

    Args:
        max_bytes: Maximum total size of cached files.

    Attributes:
        num_bytes: Total size of cached files.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self._files: OrderedDict[str, StepFile] = OrderedDict()

    def get(self, key: str) -> StepFile | None:
        """Return a file; None if it is not cached."""
        found = self._files.get(key)
        if found is not None:
            self._files.move_to_end(key)
        return found

    def keep(self, file: StepFile) -> None:
        """Cache a file as the most recently used."""
        before = self._files.pop(file.key, None)
        self._files[file.key] = file
        self.num_bytes += _length(file) - (0 if before is None else _length(before))
        while self.num_bytes > self._max_bytes:
            _, oldest = self._files.popitem(last=False)
            self.num_bytes -= _length(oldest)


def load_step_files(store: Store, keys: Iterable[str]) -> list[StepFile]:
    """Read index files, several at a time, and return them in the order of their keys' steps.

    See `iter_step_files`, which needs less memory.
    """
    return list(iter_step_files(store, keys))


def iter_step_files(
    store: Store, keys: Iterable[str], sizes: Mapping[str, int] | None = None
) -> Iterator[StepFile]:
    """Yield index files in the step order of their keys, reading a few of them ahead.

    Missing objects are skipped, and other keys are skipped with a warning. A file that cannot be
    parsed, or is longer than `MAX_INDEX_BYTES`, is yielded with its problem. At most eight unparsed
    files are read ahead. Each key is read once.

    Args:
        store: The trial's root.
        keys: Keys of the files.
        sizes: Known sizes in bytes by key; a file that is too long is not read.
    """
    long = {key: size for key, size in (sizes or {}).items() if size > MAX_INDEX_BYTES}
    names = {key: name for key in keys if (name := _index_name(key)) is not None}
    ordered = sorted(names, key=lambda key: (names[key].step, names[key].worker))
    # `SharedReads` caches parsed files for its other readers.
    cache: StepFileCache = getattr(store, "step_files", StepFileCache(0))
    kept = {key: file for key in ordered if (file := cache.get(key)) is not None}
    kept |= {key: _too_long(key, names[key], long[key]) for key in ordered if key in long}
    unread = [key for key in ordered if key not in kept]
    contents = _contents(store, unread)
    for key in ordered:
        known = kept.pop(key, None)
        if known is None:
            data = next(contents)
            if data is None:
                continue
            known = _parsed(key, names[key], data)
            cache.keep(known)
        yield known


def _contents(store: Store, keys: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the contents of files in order; a remote store reads ahead."""
    if len(keys) <= 1 or not is_remote(store):
        yield from (_read(store, key) for key in keys)
        return
    with ThreadPoolExecutor(max_workers=min(_PARALLEL_GETS, len(keys))) as pool:
        under_way = deque(pool.submit(_read, store, key) for key in keys[:_PARALLEL_GETS])
        for key in chain(keys[_PARALLEL_GETS:], repeat(None, len(under_way))):
            data = under_way.popleft().result()
            if key is not None:
                under_way.append(pool.submit(_read, store, key))
            yield data


def list_index_files(store: Store, *, after_step: int = -1) -> Iterator[tuple[str, IndexName]]:
    """Yield key and name of every index file of later steps, in step order, by one listing.

    Args:
        store: The trial's root.
        after_step: Files up to this step are skipped.
    """
    # The keys of one step differ only in the worker, and no worker's name sorts before this one.
    after = None if after_step < 0 else index_key(after_step, "!")
    for key in store.list(INDEX_PREFIX, after=after):
        name = _index_name(key)
        if name is not None and name.step > after_step:
            yield key, name


def is_remote(store: Store) -> bool:
    """Return whether requests to the store are slow enough to make them in parallel."""
    return not store.uri.startswith(("memory:", "file:"))


@lru_cache(maxsize=4096)  # a key is listed, then read
def _index_name(key: str) -> IndexName | None:
    try:
        name = parse_index_key(key)
    except FormatError as error:
        _logger.warning("ignored an object among the index files: %s", error)
        return None
    if index_key(name.step, name.worker) != key:
        # It is in another step's folder, where no reader would find it by its step.
        _logger.warning("ignored an index file in the wrong folder: %s", key)
        return None
    return name


def _read(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key, 0, MAX_INDEX_BYTES + 1)
    except ObjectNotFoundError:
        return None


def _parsed(key: str, name: IndexName, data: bytes) -> StepFile:
    try:
        index = parse_index(data, file=key)
    except FormatError as error:
        return StepFile(key, name.step, name.worker, None, str(error))
    return StepFile(key, name.step, name.worker, index, num_bytes=len(data))


def _too_long(key: str, name: IndexName, size: int) -> StepFile:
    problem = f"{key} has {size} bytes, at most {MAX_INDEX_BYTES} are allowed"
    return StepFile(key, name.step, name.worker, None, problem)


def _length(file: StepFile) -> int:
    return max(file.num_bytes, _LEAST_FILE_BYTES)
