"""The index files of a trial: loading them in parallel, finding new ones, who passed a step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from hook_layer.format.errors import FormatError
from hook_layer.format.index import IndexFile, parse_index
from hook_layer.format.paths import INDEX_PREFIX, IndexName, index_key, parse_index_key
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = ["StepFile", "StepIndex", "is_remote", "list_index_files", "load_step_files"]

_logger = logging.getLogger(__name__)

_PARALLEL_GETS: Final = 8

_FOREIGN_LOOKED_AT: Final = 16
"""Files of another run, for each worker, that a refresh looks at again: they may be overwritten."""


@dataclass(frozen=True, eq=False)
class StepFile:
    """One index file: what one worker wrote at one step.

    Attributes:
        key: Key relative to the trial's root.
        step: Global step.
        worker: Name of the worker.
        index: The parsed file, None if it could not be parsed.
        problem: Why it could not be parsed, else None.
    """

    key: str
    step: int
    worker: str
    index: IndexFile | None
    problem: str | None = None


def load_step_files(
    store: Store, keys: Iterable[str], *, parallel: int = _PARALLEL_GETS
) -> list[StepFile]:
    """Read index files, several at a time, and return them in the order of their keys' steps.

    Objects that do not exist are left out, and so are keys that are no index file's, with a
    warning. A file that cannot be parsed is returned with its problem: whoever follows a job goes
    on.

    Args:
        store: The trial's root.
        keys: Keys relative to it; each is read once.
        parallel: Number of simultaneous reads.

    Raises:
        StorageError: If the storage fails otherwise than by a missing object.
    """
    names = {key: name for key in keys if (name := _index_name(key)) is not None}
    ordered = sorted(names, key=lambda key: (names[key].step, names[key].worker))
    if len(ordered) <= 1 or parallel <= 1 or not is_remote(store):
        loaded = [_load(store, key, names[key]) for key in ordered]
    else:
        with ThreadPoolExecutor(max_workers=min(parallel, len(ordered))) as pool:
            loaded = list(pool.map(lambda key: _load(store, key, names[key]), ordered))
    return [file for file in loaded if file is not None]


def list_index_files(store: Store, *, after_step: int = -1) -> Iterator[tuple[str, IndexName]]:
    """Yield key and name of every index file of a later step, in step order, by one listing.

    Args:
        store: The trial's root.
        after_step: Files of this step and earlier ones are left out.
    """
    # The keys of one step differ in the worker only, and no worker's name sorts before this one.
    after = None if after_step < 0 else index_key(after_step, "!")
    for key in store.list(INDEX_PREFIX, after=after):
        name = _index_name(key)
        if name is not None and name.step > after_step:
            yield key, name


def is_remote(store: Store) -> bool:
    """Tell whether a request to the store costs so much time that several should be under way.

    Args:
        store: The store.
    """
    return not store.uri.startswith(("memory:", "file:"))


def _index_name(key: str) -> IndexName | None:
    try:
        name = parse_index_key(key)
    except FormatError as error:
        _logger.warning("ignored an object among the index files: %s", error)
        return None
    if index_key(name.step, name.worker) != key:
        # It lies in another step's folder, where no reader would look for it by its step.
        _logger.warning("ignored an index file in the wrong folder: %s", key)
        return None
    return name


def _load(store: Store, key: str, name: IndexName) -> StepFile | None:
    try:
        data = store.get(key)
    except ObjectNotFoundError:
        return None
    try:
        index = parse_index(data, file=key)
    except FormatError as error:
        return StepFile(key, name.step, name.worker, None, str(error))
    return StepFile(key, name.step, name.worker, index)


class StepIndex:
    """All index files of one run, found bit by bit while they are being written.

    A listing begins behind the step up to which nothing can be missing any more, so it stays short
    however long the run is. For files without a sequence number nothing tells that; they are always
    listed from the beginning, but each is read once. So a file that comes late is found all the
    same.

    Args:
        store: The trial's root.
        run: RunId of the run; files of other runs are left out.
        range_steps: Steps to look at, from the first to before the second; None for no limit.

    Attributes:
        files: The run's files by step and worker.
        problems: What was wrong with files that could not be parsed, by key.
    """

    def __init__(
        self,
        store: Store,
        run: str | None,
        range_steps: tuple[int | None, int | None] | None = None,
    ) -> None:
        self._store = store
        self._run = run
        begin, end = range_steps or (None, None)
        self._begin = begin or 0
        self._end = end
        self.files: dict[int, dict[str, StepFile]] = {}
        self.problems: dict[str, str] = {}
        self._workers: dict[str, _WorkerFiles] = {}
        self._num_workers = 0
        self._foreign: dict[str, IndexName] = {}

    @property
    def workers(self) -> list[str]:
        """The workers seen, sorted."""
        return sorted(self._workers)

    @property
    def num_workers(self) -> int:
        """How many workers write according to the files; 0 if they do not tell."""
        return self._num_workers

    def refresh(self, *, is_last: bool = False) -> list[StepFile]:
        """Find and read the files that have come since; return those of this run in step order.

        Args:
            is_last: True once the run has ended: what other runs left behind is looked at again
                too.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        new: list[StepFile] = []
        keys = self._unread_keys() + (list(self._foreign) if is_last else self._overwritten_keys())
        while keys:
            own = [file for file in load_step_files(self._store, keys) if self._take(file)]
            new.extend(own)
            keys = self._overwritten_keys() if own and not is_last else []
        return sorted(new, key=lambda file: (file.step, file.worker))

    def passed_step(self, num_workers: int) -> int:
        """Return the step up to which every worker's files are known; -1 if there is none.

        Args:
            num_workers: How many workers write.
        """
        if not self._workers or len(self._workers) < num_workers:
            return -1
        return min(worker.passed_step for worker in self._workers.values())

    def _unread_keys(self) -> list[str]:
        is_told = self._num_workers > 0 and all(w.is_sequenced for w in self._workers.values())
        after = self.passed_step(self._num_workers) if is_told else -1
        keys = []
        for key, name in list_index_files(self._store, after_step=max(after, self._begin - 1)):
            if self._end is not None and name.step >= self._end:
                break
            is_read = name.worker in self.files.get(name.step, ()) or key in self.problems
            if not is_read and key not in self._foreign:
                keys.append(key)
        return keys

    def _overwritten_keys(self) -> list[str]:
        """Return keys that held files of another run and may hold this run's by now.

        Those are, of each worker, the next ones behind its last file, and all before it if one of
        its files is missing.
        """
        behind: dict[str, int] = {}
        keys = []
        for key, name in sorted(self._foreign.items(), key=lambda item: item[1].step):
            worker = self._workers.get(name.worker)
            if worker is not None and name.step <= worker.last_step:
                keys += [key] if worker.has_hole else []
            elif behind.setdefault(name.worker, 0) < _FOREIGN_LOOKED_AT:
                behind[name.worker] += 1
                keys.append(key)
        return keys

    def _take(self, file: StepFile) -> bool:
        if file.index is None:
            self.problems[file.key] = file.problem or ""
            return False
        if file.index.run != self._run:
            self._foreign[file.key] = IndexName(file.step, file.worker)
            return False
        self._foreign.pop(file.key, None)
        self.files.setdefault(file.step, {})[file.worker] = file
        self._workers.setdefault(file.worker, _WorkerFiles()).add(file.step, file.index.sequence)
        self._num_workers = max(self._num_workers, file.index.workers or 0)
        return True


class _WorkerFiles:
    """The sequence numbers of one worker's files."""

    def __init__(self) -> None:
        self.is_sequenced = True
        self.last_step = -1
        self._contiguous = 0
        self._contiguous_step = -1
        self._ahead: dict[int, int] = {}

    @property
    def has_hole(self) -> bool:
        return bool(self._ahead)

    @property
    def passed_step(self) -> int:
        # Without numbers, the worker's order of writing is all that there is to go by.
        return self._contiguous_step if self.is_sequenced else self.last_step

    def add(self, step: int, sequence: int | None) -> None:
        self.last_step = max(self.last_step, step)
        if sequence is None:
            self.is_sequenced = False
            return
        self._ahead[sequence] = step
        while (following := self._ahead.pop(self._contiguous + 1, None)) is not None:
            self._contiguous += 1
            self._contiguous_step = max(self._contiguous_step, following)
