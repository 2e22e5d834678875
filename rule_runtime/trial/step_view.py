"""What a rule sees of one step: statistics as vectors, values only when asked for.

Shape legend: R = selected rows, one for each (tensor, worker).

From a step a rule gets to earlier ones of the same run and to the same step of other trials; their
values are read when they are asked for, so that a rule's memory need not hold any.

The tensors of a step are nearly always those of the step before, so what a selection means is
worked out once for each distinct tuple of names (`layout.py`) and then is an array of row numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import index_key
from hook_layer.known_collections import meant_collection
from hook_layer.storage.base import ObjectNotFoundError, Store, StoreRefusedError
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.errors import CollectionUnavailable, InvalidWorker, TensorUnavailableForStep
from rule_runtime.trial.layout import Layout, Layouts
from rule_runtime.trial.merged_shards import with_merged_shards
from rule_runtime.trial.other_trials import OtherTrial, OtherTrialError, open_other_trial
from rule_runtime.trial.step_index import StepFile, StepFileCache, load_step_files
from rule_runtime.trial.tensor_rows import Part, TensorRows, index_of

__all__ = ["StepReader", "StepView", "TensorRows"]

_RECENT_BYTES: Final = 16 << 20
"""Length of the index files that are kept, for rules that compare a step with those before it."""

_Fact = TypeVar("_Fact")


class _Named(Protocol):
    """A collection in full, known by its name."""

    @property
    def name(self) -> str:
        """Its name."""


class StepView:
    """One step of a run, as every worker wrote it, with its tensors.

    Args:
        reader: What the steps of the trial share.
        step: Global step.
        files: Its index files by worker, parsed, sorted, at least one.
        num_workers: How many workers write in this run.

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
        """When the first worker began the step, in seconds since 1970; None if no file has it."""
        times = [index_of(file).time for file in self._files.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def index_keys(self) -> list[str]:
        """Keys of the step's index files, sorted."""
        return sorted(file.key for file in self._files.values())

    def stage(self, worker: str) -> int | None:
        """Return the number of the pipeline stage that a worker trains; None without a pipeline.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return self._index_of(worker).stage

    def value_bytes(self, worker: str) -> dict[str, int]:
        """Return how many bytes the record of each tensor of a worker has; without one, none.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return {row.name: row.length for row in self._index_of(worker).locations}

    @property
    def store(self) -> Store:
        """The trial's root, which is only read."""
        return self._reader.store

    def tensors(
        self, *, collections: Iterable[str | _Named] = (), regex: Iterable[str] = ()
    ) -> TensorRows:
        """Select tensors of this step; the union where both are given, all where neither is.

        Args:
            collections: Names of collections, or one name; a rule's `self.collections`.
            regex: Regular expressions, searched for in the tensors' names, or one.

        Raises:
            CollectionUnavailable: If a name of a collection is misspelled.
        """
        key = (_texts(collections), _texts(regex))
        for name in key[0]:
            meant = meant_collection(name)
            if meant is not None and not self._declares(name):
                raise CollectionUnavailable(name, meant)
        parts: list[Part] = []
        for file in self._files.values():
            layout = self._reader.layout(file)
            names, rows = layout.select(key)
            if names:
                parts.append((file, names, rows))
        return TensorRows(self._reader, parts)

    def fact(self, kind: Callable[[StepView], _Fact]) -> _Fact:
        """Return what is known about this step, computed once for all rules.

        Args:
            kind: A class of `rule_runtime.facts`, or any function of a step.
        """
        if kind not in self._facts:
            self._facts[kind] = kind(self)
        return cast("_Fact", self._facts[kind])

    def value(self, name: str, worker: str | None = None) -> npt.NDArray[Any]:
        """Return the value of a tensor, read from the event file.

        Args:
            name: Name of the tensor.
            worker: Whose; None for the first worker that saved it.

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

    def _declares(self, collection: str) -> bool:
        files = map(self.collections_file, self.workers)
        return any(file is not None and collection in file.collections for file in files)

    def _unavailable(self, name: str) -> TensorUnavailableForStep:
        error = TensorUnavailableForStep(name, self.step, self.mode)
        close = difflib.get_close_matches(name, self.tensors().names, n=1)
        if close and close != [name]:
            error.args = (f"{error} Did you mean {close[0]!r}?",)
        return error

    def values(self, names: Iterable[str], worker: str) -> dict[str, npt.NDArray[Any]]:
        """Return the values of tensors of one worker, of those that have one.

        Neighbours are read together.

        Raises:
            InvalidWorker: If no such worker wrote this step.
            RecordError: If the event file is damaged, or a record longer than 2 GiB.
        """
        return dict(self.iter_values(names, worker))

    def iter_values(
        self, names: Iterable[str], worker: str
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield name and value of tensors of one worker that have one, in the order of the file.

        The memory needed is that of the largest of them, or 16 MiB, if none is kept.

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

    def collections_file(self, worker: str) -> CollectionsFile | None:
        """Return what a worker says of its collections, None if it said nothing that can be read.

        Costs a request at the first step that is asked about, and as long as there is no file.
        """
        return self._reader.collections.load(worker)

    def earlier(self, number: int) -> StepView | None:
        """Return an earlier step of the same run; None if none of this step's workers wrote it.

        Costs a request for each worker, unless the step was looked at just before.

        Args:
            number: Its global step.

        Raises:
            ValueError: If it is no earlier step.
            StorageError: If the storage fails otherwise than by a missing object.
        """
        if not 0 <= number < self.step:
            raise ValueError(f"step {number} is no step before step {self.step}")
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

        The same is the step of the same mode and number in that mode; the same global step where
        one of the two runs does not distinguish modes.

        Args:
            root: Path or URI of the other trial, or the name of a job that writes beside this one.

        Returns:
            The step; None if the other trial does not have it.

        Raises:
            OtherTrialError: If the other trial does not exist, or may not be read.
            StorageError: If the storage fails otherwise than by a missing object.
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
    """Makes views of steps and keeps what they share."""

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
        """Return another trial, and what makes views of its steps.

        Raises:
            OtherTrialError: If it does not exist, or may not be read.
            StorageError: If the storage fails otherwise than by a missing object.
        """
        if root not in self._others:
            trial = open_other_trial(root, beside=self.store.uri)
            self._others[root] = trial, StepReader(trial.store)
        return self._others[root]

    def num_workers(self) -> int | None:
        """Return how many workers write by their collections files, None if none exists."""
        return self.collections.num_workers(self.collections.workers())

    def layout(self, file: StepFile) -> Layout:
        """Return what the names of an index file's tensors mean."""
        index = index_of(file)
        block = () if index.statistics is None else index.statistics.tensors
        return self._layouts.get(file.worker, block, index.locations)

    def computed(
        self, file: StepFile, names: tuple[str, ...], column: str
    ) -> npt.NDArray[np.float64]:
        """Return a statistic that the index does not hold, from the stored values or reductions."""
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
