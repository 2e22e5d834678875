"""Writes trials for tests with the code of the file format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
)
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, collections_key, event_key, index_key
from hook_layer.format.records import encode_record
from hook_layer.storage.base import Store, open_store
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import Outcome
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.collection_reader import DEFAULT_REGEXES
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader, StepView
from rule_runtime.trial.tensor_statistics import tensor_statistics

__all__ = ["TrialBuilder"]

_WALL_TIME = 1.5e9
"""Seconds; all records have this time, so that the files are reproducible."""

_OF_PARAMETERS: Final = ("weights", "biases", "gradients")


class TrialBuilder:
    """Writes a trial step by step.

    ```python
    trial = TrialBuilder()
    trial.step(0, {"gradient/a": np.zeros(3)})
    assert isinstance(trial.outcomes(VanishingGradient())[0], IssueFound)
    ```

    Args:
        store: A folder, a URI or a store; by default a store in memory.
        run: RunId of the run; None for files in the original client's format, without statistics,
            run, number of workers and sequence numbers.
        num_workers: Number of workers.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        run: str | None = "run-1",
        num_workers: int = 1,
    ) -> None:
        if isinstance(store, (str, os.PathLike)):
            store = open_store(os.fspath(store))
        self.store: Store = MemoryStore() if store is None else store
        self.run = run
        self.num_workers = num_workers
        self.keys: list[str] = []
        self._sequences: dict[str, int] = {}
        self._mode_steps: dict[ModeKeys, dict[int, int]] = {}

    def step(
        self,
        step: int,
        tensors: Mapping[str, Any],
        *,
        mode: ModeKeys = ModeKeys.TRAIN,
        mode_step: int | None = None,
        worker: str = "worker_0",
        save_values: bool = True,
        time: float | None = None,
    ) -> str:
        """Write the data of one worker at one step; return the key of the index file.

        Args:
            step: Global step.
            tensors: The tensors by name; values are anything that numpy converts to arrays.
            mode: Mode of the step.
            mode_step: Step within the mode; by default, the number of its steps so far.
            worker: Name of the worker.
            save_values: False to save only statistics.
            time: Start time of the step, seconds since 1970; None for a file without it.
        """
        arrays = {name: np.asarray(value) for name, value in tensors.items()}
        steps_of_mode = self._mode_steps.setdefault(mode, {})
        if mode_step is None:
            mode_step = step if mode is ModeKeys.GLOBAL else len(steps_of_mode)
        mode_step = steps_of_mode.setdefault(step, mode_step)
        locations: tuple[TensorLocation, ...] = ()
        checksums: dict[str, int | None] = dict.fromkeys(arrays)
        event_file = None
        if save_values:
            event_file = event_key(step, worker)
            locations, checksums = self._write_events(event_file, arrays, step, mode, mode_step)
        is_ours = self.run is not None
        sequence = self._sequences[worker] = self._sequences.get(worker, 0) + 1
        index = IndexFile(
            mode=mode,
            mode_step=mode_step,
            event_file_name=event_file,
            locations=locations,
            shapes=(
                ()
                if save_values
                else tuple(TensorShape(name, name, array.shape) for name, array in arrays.items())
            ),
            statistics=_statistics(arrays, checksums) if is_ours else None,
            run=self.run,
            workers=self.num_workers if is_ours else None,
            sequence=sequence if is_ours else None,
            time=time if is_ours else None,
        )
        key = index_key(step, worker)
        self.store.put(key, index.encode())
        self.keys.append(key)
        return key

    def collections(self, *, worker: str = "worker_0", **regexes: tuple[str, ...]) -> None:
        """Write a worker's collections file; like a hook's, it includes their parameters."""
        known = {name: DEFAULT_REGEXES[name] for name in _OF_PARAMETERS} | regexes
        entries = {name: CollectionEntry(name, include_regex=r) for name, r in known.items()}
        data = CollectionsFile(entries, num_workers=self.num_workers).encode()
        self.store.put(collections_key(worker), data)

    def end(self) -> None:
        """Write the end marker."""
        self.store.put(END_MARKER, EndMarker(self.run, self._sequences).encode())

    def sequence(self, worker: str = "worker_0") -> int:
        """Return the number of a worker's last index file; 0 if it wrote none."""
        return self._sequences.get(worker, 0)

    def views(self) -> list[StepView]:
        """Return the view of each step for rules, in order."""
        reader = StepReader(self.store)
        by_step: dict[int, list[Any]] = {}
        for file in load_step_files(self.store, self.keys):
            by_step.setdefault(file.step, []).append(file)
        return [
            reader.view(step, files, num_workers=self.num_workers)
            for step, files in sorted(by_step.items())
        ]

    def outcomes(self, rule: Rule) -> list[Outcome]:
        """Return a rule's outcome for each step, in order."""
        evaluation = Evaluation.fresh(rule)
        return [evaluation.feed(view) for view in self.views()]

    def evaluate(self, rule: Rule) -> EvaluationState:
        """Return the final state of a rule over the whole run."""
        reconciler = Reconciler(self.store, rule, self.run)
        return reconciler.advance(EvaluationState.initial(), (), ended=True)

    def _write_events(
        self,
        key: str,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        step: int,
        mode: ModeKeys,
        mode_step: int,
    ) -> tuple[tuple[TensorLocation, ...], dict[str, int | None]]:
        buffers: list[bytes | memoryview] = []
        locations = []
        checksums: dict[str, int | None] = {}
        start = 0
        for name, array in arrays.items():
            record = encode_record(
                name, array, step=step, mode=mode, mode_step=mode_step, wall_time=_WALL_TIME
            )
            buffers.extend(record.buffers)
            locations.append(TensorLocation(name, start, record.length))
            checksums[name] = record.crc32c
            start += record.length
        self.store.put(key, buffers)
        return tuple(locations), checksums


def _statistics(
    arrays: Mapping[str, np.ndarray[Any, Any]], checksums: Mapping[str, int | None]
) -> Statistics:
    rows = [tensor_statistics(array) for array in arrays.values()]
    return Statistics(
        columns=STATISTICS_COLUMNS,
        tensors=tuple(arrays),
        dtypes=tuple(array.dtype.name for array in arrays.values()),
        shapes=tuple(array.shape for array in arrays.values()),
        values=np.array(rows).reshape(len(rows), len(STATISTICS_COLUMNS)),
        crc32c=tuple(checksums[name] for name in arrays),
    )
