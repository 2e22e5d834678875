"""Reads the output of a hook, using only the format; for tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hook_layer.format.collections_file import CollectionsFile, parse_collections
from hook_layer.format.end_marker import EndMarker, parse_end_marker
from hook_layer.format.index import IndexFile, parse_index
from hook_layer.format.job_file import JobFile, parse_job_file
from hook_layer.format.paths import END_MARKER, JOB_FILE, collections_key, parse_index_key
from hook_layer.format.records import TensorRecord, decode_record
from hook_layer.storage.base import Store, open_store

__all__ = ["WrittenTrial"]


@dataclass
class WrittenTrial:
    """The files of a trial."""

    uri: str

    @cached_property
    def store(self) -> Store:
        """The trial's root as a store."""
        return open_store(self.uri)

    def indexes(self, worker: str = "worker_0") -> dict[int, IndexFile]:
        """Return a worker's index files by global step."""
        found = {}
        for key in self.store.list("index/"):
            name = parse_index_key(key)
            if name.worker == worker:
                found[name.step] = parse_index(self.store.get(key), file=key)
        return found

    def records(self, step: int, worker: str = "worker_0") -> dict[str, TensorRecord]:
        """Return the stored tensors of a step by name; check checksums, names and steps."""
        index = self.indexes(worker)[step]
        statistics = index.statistics
        if statistics is None:
            raise ValueError(f"step {step} has no statistics block")
        checksums = dict(zip(statistics.tensors, statistics.crc32c, strict=True))
        found = {}
        for row in index.locations:
            data = self.store.get(index.event_file_name or "", row.start, row.length)
            record = decode_record(data, file="events", crc32c=checksums[row.name])
            if (record.name, record.step) != (row.name, step):
                raise ValueError(f"{row.name} of step {step} is {record.name} of {record.step}")
            found[row.name] = record
        return found

    def values(self, step: int) -> dict[str, NDArray[Any]]:
        """Return the stored values of a step by name."""
        return {name: record.value for name, record in self.records(step).items()}

    def statistics(self, step: int) -> dict[str, dict[str, float]]:
        """Return the statistics of a step, by tensor and column."""
        block = self.indexes()[step].statistics
        if block is None:
            raise ValueError(f"step {step} has no statistics block")
        rows = zip(block.tensors, np.asarray(block.values), strict=True)
        return {name: dict(zip(block.columns, map(float, row), strict=True)) for name, row in rows}

    def names(self, step: int) -> set[str]:
        """Return the names of all tensors of a step, with or without a stored value."""
        index = self.indexes()[step]
        return {row.name for row in index.locations} | {row.name for row in index.shapes}

    def collections(self, worker: str = "worker_0") -> CollectionsFile:
        """Return a worker's collections file."""
        key = collections_key(worker)
        return parse_collections(self.store.get(key), file=key)

    def job(self) -> JobFile:
        """Return `job.json`."""
        return parse_job_file(self.store.get(JOB_FILE), file=JOB_FILE)

    def end_marker(self) -> EndMarker | None:
        """Return the end marker; None if there is none."""
        if not self.store.exists(END_MARKER):
            return None
        return parse_end_marker(self.store.get(END_MARKER), file=END_MARKER)
