"""What a rule sees of one step: statistics as vectors, values only when asked for.

Shape legend: R = selected rows, one for each (tensor, worker).

The tensors of a step are nearly always those of the step before, so what a selection means is
worked out once for each distinct tuple of names (`layout.py`) and then is an array of row numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import ObjectNotFoundError, Store
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.errors import InvalidWorker, TensorUnavailableForStep
from rule_runtime.trial.event_reader import MAX_RECORD_BYTES, iter_tensors
from rule_runtime.trial.layout import Layout
from rule_runtime.trial.missing_statistics import computed_statistics
from rule_runtime.trial.step_index import StepFile

__all__ = ["StepReader", "StepView", "TensorRows"]

_MAX_LAYOUTS: Final = 128


class TensorRows:
    """The statistics of some tensors of a step, one row for each (tensor, worker).

    Attributes:
        names: Name of each row's tensor [R].
        workers: Worker of each row [R].
    """

    __slots__ = ("_parts", "_view", "names", "workers")

    def __init__(
        self,
        view: StepView,
        parts: Sequence[tuple[StepFile, tuple[str, ...], npt.NDArray[np.intp]]],
    ) -> None:
        self._view = view
        self._parts = parts
        if len(parts) == 1:
            file, self.names, _ = parts[0]
            self.workers: tuple[str, ...] = (file.worker,) * len(self.names)
        else:
            self.names = tuple(name for _, names, _ in parts for name in names)
            self.workers = tuple(file.worker for file, names, _ in parts for _ in names)

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return one statistic of every row [R]; NaN where it is not known.

        Args:
            name: One of `STATISTICS_COLUMNS`.

        Raises:
            ValueError: If there is no such statistic.
        """
        if name not in STATISTICS_COLUMNS:
            raise ValueError(
                f"there is no statistic {name!r}; valid are {', '.join(STATISTICS_COLUMNS)}"
            )
        vectors = [self._view._column(*part, name) for part in self._parts]  # noqa: SLF001
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(vectors) if vectors else np.empty(0)


class StepView:
    """One step of a run, as every worker wrote it.

    Attributes:
        step: Global step.
        mode: Mode of the step.
        mode_step: Step within the mode.
        workers: The workers that wrote the step, sorted.
        is_complete: True if every worker of the run wrote it.
    """

    __slots__ = ("_files", "_reader", "is_complete", "mode", "mode_step", "step", "workers")

    def __init__(
        self, reader: StepReader, step: int, files: Mapping[str, StepFile], *, is_complete: bool
    ) -> None:
        self._reader = reader
        self._files = files
        first = _index_of(next(iter(files.values())))
        self.step = step
        self.mode: ModeKeys = first.mode
        self.mode_step: int = first.mode_step
        self.workers: tuple[str, ...] = tuple(files)
        self.is_complete = is_complete

    def tensors(self, *, collections: Iterable[str] = (), regex: Iterable[str] = ()) -> TensorRows:
        """Select tensors of this step; the union where both are given, all where neither is.

        Args:
            collections: Names of collections.
            regex: Regular expressions, searched for in the tensors' names.
        """
        key = (tuple(collections), tuple(regex))
        parts = []
        for file in self._files.values():
            layout = self._reader.layout(file)
            names, rows = layout.select(key)
            if names:
                parts.append((file, names, rows))
        return TensorRows(self, parts)

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
        raise TensorUnavailableForStep(name, self.step)

    def values(self, names: Iterable[str], worker: str) -> dict[str, npt.NDArray[Any]]:
        """Return the values of several tensors of one worker; neighbours are read together.

        Args:
            names: Names of the tensors; those without a value are left out.
            worker: Whose.

        Raises:
            InvalidWorker: If no such worker wrote this step.
            RecordError: If the event file is damaged, or a record longer than 2 GiB.
        """
        if worker not in self._files:
            raise InvalidWorker(worker)
        index = _index_of(self._files[worker])
        try:
            found = iter_tensors(
                self._reader.store, index, names, max_record_bytes=MAX_RECORD_BYTES
            )
            return dict(found)
        except ObjectNotFoundError:
            return {}

    def _column(
        self, file: StepFile, names: tuple[str, ...], rows: npt.NDArray[np.intp], name: str
    ) -> npt.NDArray[np.float64]:
        block = _index_of(file).statistics
        if block is None:
            return self._reader.computed(file, names, name)
        vector = _known(block.values, block.columns, rows, name)
        size = _known(block.values, block.columns, rows, "size")
        unknown = np.isnan(size)
        if unknown.any():
            missing = np.flatnonzero(unknown)
            vector = vector.copy()
            vector[missing] = self._reader.computed(file, tuple(names[i] for i in missing), name)
        return vector


class StepReader:
    """Makes views of steps and keeps what they share.

    Args:
        store: The trial's root.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.collections = CollectionReader(store)
        self._layouts: OrderedDict[tuple[Any, ...], Layout] = OrderedDict()
        self._computed: tuple[str, dict[str, npt.NDArray[np.float64]]] = ("", {})

    def view(self, step: int, files: Sequence[StepFile], *, num_workers: int) -> StepView:
        """Return the view of one step.

        Args:
            step: Global step.
            files: The step's index files, parsed, at least one.
            num_workers: How many workers write in this run.
        """
        by_worker = {file.worker: file for file in sorted(files, key=lambda file: file.worker)}
        return StepView(self, step, by_worker, is_complete=len(by_worker) >= num_workers)

    def num_workers(self, workers: Iterable[str] = ()) -> int | None:
        """Return how many workers write according to their collections files, None if none exists.

        Args:
            workers: Workers that are known by name, whose files are looked at first.
        """
        for worker in (*workers, *self.collections.workers()):
            file = self.collections.load(worker)
            if file is not None:
                return file.num_workers
        return None

    def layout(self, file: StepFile) -> Layout:
        """Return what the names of an index file's tensors mean.

        Args:
            file: The index file.
        """
        index = _index_of(file)
        block = () if index.statistics is None else index.statistics.tensors
        key = (file.worker, block, tuple([row.name for row in index.locations]))
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = Layout(self.collections, file.worker, block, key[2])
            if len(self._layouts) > _MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        return layout

    def computed(
        self, file: StepFile, names: tuple[str, ...], column: str
    ) -> npt.NDArray[np.float64]:
        """Return a statistic that the index does not hold, from the stored values or reductions.

        Args:
            file: The index file.
            names: The tensors [R].
            column: One of `STATISTICS_COLUMNS`.
        """
        cached_key, rows = self._computed
        if cached_key != file.key:
            rows = {}
            self._computed = (file.key, rows)
        missing = [name for name in names if name not in rows]
        if missing:
            rows.update(computed_statistics(self.store, _index_of(file), missing))
        at = STATISTICS_COLUMNS.index(column)
        return np.array([rows[name][at] for name in names])


def _known(
    values: npt.NDArray[np.float64],
    columns: tuple[str, ...],
    rows: npt.NDArray[np.intp],
    name: str,
) -> npt.NDArray[np.float64]:
    if name not in columns or not len(values):
        return np.full(len(rows), np.nan)
    vector: npt.NDArray[np.float64] = values[rows, columns.index(name)]
    if (rows < 0).any():
        vector[rows < 0] = np.nan
    return vector


def _index_of(file: StepFile) -> IndexFile:
    if file.index is None:
        raise ValueError(f"{file.key} could not be parsed: {file.problem}")
    return file.index
