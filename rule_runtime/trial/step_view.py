"""The view of one step for rules: statistics as vectors, values on demand.

Shape legend: R = selected rows, one for each (tensor, worker).

From a step, a rule can reach earlier steps of the run and the same step of other trials. Values are
read on demand, so rules need not keep them.

Consecutive steps mostly have the same tensors. So a selection is resolved once for each distinct
tuple of names (`layout.py`) and is then an array of row numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from hook_layer.format.known_collections import meant_collection
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import index_key
from hook_layer.storage.base import ObjectNotFoundError, Store, StoreRefusedError
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.errors import CollectionUnavailable, InvalidWorker, TensorUnavailableForStep
from rule_runtime.trial.layout import Layout, Layouts
from rule_runtime.trial.merged_shards import with_merged_shards
from rule_runtime.trial.other_trials import OtherTrial, OtherTrialError, open_other_trial
from rule_runtime.trial.step_index import StepFile, StepFileCache, load_step_files
from rule_runtime.trial.tensor_rows import Part, TensorRows, index_of

__all__ = ["SAVE_VALUES", "StepReader", "StepView", "TensorRows"]

SAVE_VALUES: Final = "save their values (save_raw_tensor)"
_RAISE_LIMITS: Final = (
    "the limits of the hook left out values; raise max_step_bytes, max_run_bytes or "
    "raw_max_elements"
)
_RECENT_BYTES: Final = 16 << 20
"""Size of the cached index files, for rules that compare a step with earlier ones."""

_Fact = TypeVar("_Fact")


class _Named(Protocol):
    """A whole collection, given by its name."""

    @property
    def name(self) -> str:
        """Its name."""


class StepView:
    """One step of a run with its tensors, as every worker wrote it.

    Args:
        reader: State that the steps of the trial share.
        step: Global step.
        files: Its parsed index files by worker, sorted; at least one.
        num_workers: Number of writing workers in this run.

    Attributes:
        step: Global step.
        mode: Mode of the step.
        mode_step: Step within the mode.
        run: RunId of the run; None for files of the original client.
        workers: The workers that wrote the step, sorted.
        is_complete: True if every worker of the run wrote it.
    """

    __slots__ = (
        *("_facts", "_files", "_num_workers", "_reader"),
        *("is_complete", "mode", "mode_step", "run", "step", "workers"),
    )

    def __init__(
        self, reader: StepReader, step: int, files: Mapping[str, StepFile], *, num_workers: int
    ) -> None:
        self._reader = reader
        self._files = files
        self._num_workers = num_workers
        self._facts: dict[Callable[[StepView], Any], Any] = {}
        first = index_of(next(iter(files.values())))
        self.step = step
        self.mode: ModeKeys = first.mode
        self.mode_step: int = first.mode_step
        self.run: str | None = first.run
        self.workers: tuple[str, ...] = tuple(files)
        self.is_complete = len(files) >= num_workers

    @property
    def time(self) -> float | None:
        """Time when the first worker began the step, in seconds since 1970; None if unknown."""
        times = [index_of(file).time for file in self._files.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def index_keys(self) -> list[str]:
        """Keys of the step's index files, sorted."""
        return sorted(file.key for file in self._files.values())

    def how_to_save(self, names: Collection[str], otherwise: str = SAVE_VALUES) -> str:
        """Return how to save missing values: raise the limits of the hook, or `otherwise`."""
        first_rows = [index_of(file).first_rows for file in self._files.values()]
        is_above_limit = any(rows.get(name) == 0 for rows in first_rows for name in names)
        return _RAISE_LIMITS if is_above_limit else otherwise

    def stage(self, worker: str) -> int | None:
        """Return the number of the pipeline stage that a worker trains; None without a pipeline.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return self._index_of(worker).stage

    def value_bytes(self, worker: str) -> dict[str, int]:
        """Return the size in bytes of the record of each tensor that a worker saved; empty if none.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return {row.name: row.length for row in self._index_of(worker).locations}

    @property
    def store(self) -> Store:
        """The trial's root, for reading only."""
        return self._reader.store

    def tensors(
        self, *, collections: Iterable[str | _Named] = (), regex: Iterable[str] = ()
    ) -> TensorRows:
        """Select tensors of this step: the union of both conditions, all tensors without any.

        Args:
            collections: Names of collections, or one name; a rule's `self.collections`.
            regex: Regular expressions, or one, that are searched for in the tensors' names.

        Raises:
            CollectionUnavailable: If the name of a collection is misspelled.
        """
        key = (_texts(collections), _texts(regex))
        for name in key[0]:
            meant = meant_collection(name)
            if meant is not None and not self.declares(name):
                raise CollectionUnavailable(name, meant)
        parts: list[Part] = []
        for file in self._files.values():
            layout = self._reader.layout(file)
            names, rows = layout.select(key)
            if names:
                parts.append((file, names, rows))
        return TensorRows(self._reader, parts)

    def fact(self, kind: Callable[[StepView], _Fact]) -> _Fact:
        """Return a fact about this step, computed once for all rules.

        Args:
            kind: A class of `rule_runtime.facts`, or any function of a step.
        """
        if kind not in self._facts:
            self._facts[kind] = kind(self)
        return cast("_Fact", self._facts[kind])

    def value(self, name: str, worker: str | None = None) -> npt.NDArray[Any]:
        """Return the value of a tensor from the event file.

        Args:
            name: Name of the tensor.
            worker: Name of the worker; None for the first worker that saved it.

        Raises:
            InvalidWorker: If no such worker wrote this step.
            TensorUnavailableForStep: If the tensor has no value at this step.
            RecordError: If the event file is damaged, or a record longer than 2 GiB.
        """
        if worker is not None and worker not in self._files:
            raise InvalidWorker(worker)
        for candidate in self.workers if worker is None else (worker,):
            found = self.values((name,), candidate)
            if name in found:
                return found[name]
        raise self._unavailable(name)

    def _index_of(self, worker: str) -> IndexFile:
        if worker not in self._files:
            raise InvalidWorker(worker)
        return index_of(self._files[worker])

    def declares(self, collection: str) -> bool:
        """Return whether the hook of a worker has a collection."""
        files = map(self.collections_file, self.workers)
        return any(file is not None and collection in file.collections for file in files)

    def _unavailable(self, name: str) -> TensorUnavailableForStep:
        error = TensorUnavailableForStep(name, self.step, self.mode)
        close = difflib.get_close_matches(name, self.tensors().names, n=1)
        hint = "" if close in ([], [name]) else f"Did you mean {close[0]!r}?"
        hint = hint or self.how_to_save((name,), "").capitalize()
        error.args = (f"{error} {hint}".rstrip(),)
        return error

    def values(self, names: Iterable[str], worker: str) -> dict[str, npt.NDArray[Any]]:
        """Return the existing values of tensors of one worker.

        Neighbours are read together.

        Raises:
            InvalidWorker: If no such worker wrote this step.
            RecordError: If the event file is damaged, or a record longer than 2 GiB.
        """
        return dict(self.iter_values(names, worker))

    def iter_values(
        self, names: Iterable[str], worker: str
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield name and value of tensors of one worker in file order; skips those without one.

        It needs memory for the largest of them, or 16 MiB, if you keep none.

        Raises:
            InvalidWorker: If no such worker wrote this step.
            RecordError: If the event file is damaged, or a record longer than 2 GiB.
        """
        index = self._index_of(worker)
        from rule_runtime.trial import event_reader  # noqa: PLC0415 - few rules read values

        try:
            yield from event_reader.iter_tensors(
                self._reader.store, index, names, max_record_bytes=event_reader.MAX_RECORD_BYTES
            )
        except ObjectNotFoundError:
            return

    def collections_file(self, worker: str, *, again: bool = False) -> CollectionsFile | None:
        """Return a worker's collections file; None if it does not exist or cannot be read.

        It makes a request at the first step, at each step while there is no file, and if it is to
        be read again.
        """
        return self._reader.collections.load(worker, again=again)

    def earlier(self, number: int) -> StepView | None:
        """Return an earlier step of the same run; None if none of this step's workers wrote it.

        It makes a request per worker, unless the step is cached.

        Args:
            number: Its global step.

        Raises:
            ValueError: If the step is not earlier.
            StorageError: If the storage fails, except for a missing object.
        """
        if not 0 <= number < self.step:
            raise ValueError(f"step {number} is not before step {self.step}")
        recent, store = self._reader.recent, self._reader.store
        wanted = {key: recent.get(key) for key in (index_key(number, w) for w in self.workers)}
        unknown = [key for key, file in wanted.items() if file is None]
        found = [*filter(None, wanted.values()), *load_step_files(store, unknown)]
        own = [file for file in found if file.index is not None and file.index.run == self.run]
        if not own:
            return None
        return self._reader.view(number, own, num_workers=self._num_workers)

    def in_other_trial(self, root: str) -> StepView | None:
        """Return the same step of another trial, as all of its workers wrote it.

        Steps match by mode and mode step. They match by global step if one of the runs does not
        distinguish modes.

        Args:
            root: Path or URI of the other trial, or the name of a job in the same folder.

        Returns:
            The step; None if the other trial does not have it.

        Raises:
            OtherTrialError: If the other trial does not exist, or must not be read.
            StorageError: If the storage fails, except for a missing object.
        """
        try:
            trial, reader = self._reader.other(root)
            files = trial.files(self.mode, self.mode_step, self.step)
        except StoreRefusedError as error:
            raise OtherTrialError(f"other trial {root!r}: {error}") from error
        if not files:
            return None
        declared = max((index_of(file).workers or 0) for file in files)
        return reader.view(files[0].step, files, num_workers=declared or len(files))

    def store_of_other_trial(self, root: str) -> Store:
        """Return the root of another trial; for the argument and errors see `in_other_trial`."""
        return self._reader.other(root)[0].store


def _texts(given: Iterable[str | _Named]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    return tuple(each if isinstance(each, str) else each.name for each in given)


class StepReader:
    """Creates views of steps and keeps their shared state."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.collections = CollectionReader(store)
        self.recent = StepFileCache(_RECENT_BYTES)
        self._others: dict[str, tuple[OtherTrial, StepReader]] = {}
        self._layouts = Layouts(self.collections)
        self._computed: tuple[str, dict[str, npt.NDArray[np.float64]]] = ("", {})

    def view(self, step: int, files: Sequence[StepFile], *, num_workers: int) -> StepView:
        """Return the view of one step."""
        by_worker = {file.worker: file for file in sorted(files, key=lambda file: file.worker)}
        for file in by_worker.values():
            self.recent.keep(file)
        return StepView(self, step, with_merged_shards(by_worker), num_workers=num_workers)

    def other(self, root: str) -> tuple[OtherTrial, StepReader]:
        """Return another trial, and the reader of its steps.

        Raises:
            OtherTrialError: If it does not exist, or must not be read.
            StorageError: If the storage fails, except for a missing object.
        """
        if root not in self._others:
            trial = open_other_trial(root, beside=self.store.uri)
            self._others[root] = trial, StepReader(trial.store)
        return self._others[root]

    def num_workers(self) -> int | None:
        """Return the number of writing workers from the collections files; None if none exists."""
        return self.collections.num_workers(self.collections.workers())

    def layout(self, file: StepFile) -> Layout:
        """Return the layout of an index file's tensors."""
        index = index_of(file)
        block = () if index.statistics is None else index.statistics.tensors
        return self._layouts.get(file.worker, block, index.locations)

    def computed(
        self, file: StepFile, names: tuple[str, ...], column: str
    ) -> npt.NDArray[np.float64]:
        """Return a statistic that the index lacks, from the stored values or reductions."""
        cached_key, rows = self._computed
        if cached_key != file.key:
            rows = {}
            self._computed = (file.key, rows)
        missing = [name for name in names if name not in rows]
        if missing:
            from rule_runtime.trial import missing_statistics  # noqa: PLC0415 - of foreign files

            rows.update(missing_statistics.computed_statistics(self.store, index_of(file), missing))
        at = STATISTICS_COLUMNS.index(column)
        return np.array([rows[name][at] for name in names])
