"""Encodes a captured step into its event file and index file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.captured_step import (
    CapturedTensor,
    Snapshot,
    StatisticsBatch,
    StepRecord,
    checked_name,
)
from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
)
from hook_layer.format.paths import event_key
from hook_layer.format.records import EncodedRecord, EventBuffers, StepEncoder
from hook_layer.format.statistics_block import Shard

__all__ = ["EncodedStep", "RunIdentity", "encode_step"]

_MAX_REMEMBERED: Final = 4

_NO_NUMBERS: Final = np.full((1, len(STATISTICS_COLUMNS)), np.nan)
_AT_END: Final = -1
"""Position of the row without numbers, after those of all batches."""

_Row: TypeAlias = "tuple[str, str, tuple[int, ...], EncodedRecord | None, int, Shard | None]"
"""A row of the statistics block: name, type, shape, value, index of its statistics, shard."""


@dataclass(frozen=True)
class RunIdentity:
    """Run and worker of a file, and the number of workers that write.

    Attributes:
        run_id: Id of this run of the job.
        worker: Name of this worker, e.g. `worker_0`.
        num_workers: Number of workers that write index files.
        stage: Index of this worker's pipeline stage; None without a pipeline.
    """

    run_id: str
    worker: str
    num_workers: int = 1
    stage: int | None = None


class EncodedStep:
    """The files of a step.

    Attributes:
        record: The captured step.
        events: Content of the event file; empty if no value is stored.
        shapes: Tensors without a stored value.
        errors: Errors of tensors that could not be encoded and were skipped.
        num_tensors: Number of tensors stored in any form.
        first_rows: Number of first rows stored of cut values.
    """

    def __init__(self, record: StepRecord) -> None:
        self.record = record
        self.events = EventBuffers()
        self.shapes: list[TensorShape] = []
        self.errors: list[Exception] = []
        self.num_tensors = 0
        self.first_rows: dict[str, int] = {}
        self._stored: list[str] = []
        self._rows: list[_Row] = []
        self._batches: list[NDArray[np.float64]] = []
        self._first_rows: dict[int, int | None] = {}
        self._encoder = StepEncoder(
            step=record.step,
            mode=record.mode,
            mode_step=record.mode_step,
            wall_time=record.wall_time,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self._stored and not self.shapes

    @property
    def locations(self) -> tuple[TensorLocation, ...]:
        """The values in the event file."""
        return _locations(
            tuple(self._stored), tuple([record.length for record in self.events.records])
        )

    def index(self, identity: RunIdentity, sequence: int, skipped: int = 0) -> IndexFile:
        """Return the index file of this step."""
        record = self.record
        return IndexFile(
            mode=record.mode,
            mode_step=record.mode_step,
            event_file_name=event_key(record.step, identity.worker) if self._stored else None,
            locations=self.locations,
            shapes=tuple(self.shapes),
            statistics=self._statistics(),
            first_rows=self.first_rows,
            run=identity.run_id,
            workers=identity.num_workers,
            sequence=sequence,
            skipped=skipped or None,
            time=record.wall_time,
            stage=identity.stage,
        )

    def add_statistics(self, batch: StatisticsBatch) -> int | None:
        """Add the statistics of several tensors, once; return the index of their first row.

        Return None if they are unavailable.
        """
        if id(batch) in self._first_rows:
            return self._first_rows[id(batch)]
        first: int | None = sum(map(len, self._batches))
        try:
            self._batches.append(batch.rows())
        except Exception as error:  # noqa: BLE001 - the values are still useful
            self.errors.append(error)
            first = None
        self._first_rows[id(batch)] = first
        return first

    def add(self, name: str, tensor: CapturedTensor, first_row: int | None) -> None:
        """Add a tensor: its value and reductions, or its shape; and its row of statistics."""
        try:
            checked_name(name)
        except ValueError as error:  # readers reject index files with this name
            self.errors.append(error)
            return
        self.num_tensors += 1
        record = None
        if tensor.raw is not None and 0 not in tensor.shape:
            record = self._append(name, tensor.raw, tensor.wall_time, tensor.rows)
        for reduced_name, snapshot in tensor.reductions:
            reduced = self._append(reduced_name, snapshot)
            if reduced is not None:
                value = snapshot.array()
                row = reduced_name, value.dtype.name, value.shape, reduced, _AT_END, None
                self._rows.append(row)
        if tensor.rows is not None:
            self.first_rows[name] = tensor.rows if record is not None else 0
        if record is None:
            self.shapes.append(TensorShape(name, name, tensor.shape))
        if record is not None or first_row is not None:
            number = _AT_END if first_row is None else first_row + tensor.row
            self._rows.append((name, tensor.dtype, tensor.shape, record, number, tensor.shard))

    def _append(
        self,
        name: str,
        snapshot: Snapshot,
        wall_time: float | None = None,
        rows: int | None = None,
    ) -> EncodedRecord | None:
        """Append a record and return it; None if the value is unavailable or cannot be encoded."""
        try:
            array = snapshot.array()
            value = array if rows is None else array[:rows]
            record = self._encoder.encode(name, value, wall_time=wall_time)
        except Exception as error:  # noqa: BLE001 - one bad tensor must not affect the others
            self.errors.append(error)
            return None
        self._stored.append(name)
        self.events.append(record)
        return record

    def _statistics(self) -> Statistics:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        names, dtypes, shapes, records, numbers, shards = columns
        known = np.concatenate([*self._batches, _NO_NUMBERS])
        return Statistics(
            columns=STATISTICS_COLUMNS,
            tensors=names,
            dtypes=dtypes,
            shapes=shapes,
            values=known[np.array(numbers, np.intp)],
            crc32c=tuple([None if record is None else record.crc32c for record in records]),
            shards=shards if any(shards) else (),
        )


def encode_step(record: StepRecord) -> EncodedStep:
    """Encode all tensors of a step; waits for statistics of a device.

    Tensors that cannot be encoded are skipped and listed in `errors`.
    """
    encoded = EncodedStep(record)
    last_batch, first_row = None, None
    for name, tensor in record.tensors.items():
        if tensor.statistics is not last_batch:  # the same for all tensors of a call
            last_batch = tensor.statistics
            first_row = None if last_batch is None else encoded.add_statistics(last_batch)
        encoded.add(name, tensor, first_row)
    return encoded


@lru_cache(maxsize=_MAX_REMEMBERED)
def _locations(names: tuple[str, ...], lengths: tuple[int, ...]) -> tuple[TensorLocation, ...]:
    """Return the positions of consecutive records; cached, because steps often have the same."""
    starts = accumulate(lengths, initial=0)
    return tuple(map(TensorLocation, names, starts, lengths))
