"""From a captured step to the two files that it is stored in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture import CapturedTensor, Snapshot, StepRecord, checked_name
from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
)
from hook_layer.format.paths import event_key
from hook_layer.format.records import encode_record
from hook_layer.statistics import NO_STATISTICS

__all__ = ["EncodedStep", "RunIdentity", "encode_step"]


@dataclass(frozen=True)
class RunIdentity:
    """Which run and worker a file is of, and how many workers write.

    Attributes:
        run_id: Id of this life of the job.
        worker: Name of this worker, e.g. `worker_0`.
        num_workers: How many workers write index files.
    """

    run_id: str
    worker: str
    num_workers: int = 1


_Row = tuple[str, str, tuple[int, ...], Any, "int | None"]


@dataclass
class EncodedStep:
    """The files of a step.

    Attributes:
        events: Content of the event file in pieces; empty when no value is stored.
        locations: The values in it.
        shapes: Tensors of which no value is stored.
        errors: What could not be encoded and was left out.
    """

    record: StepRecord
    events: list[bytes | memoryview] = field(default_factory=list)
    num_event_bytes: int = 0
    locations: list[TensorLocation] = field(default_factory=list)
    shapes: list[TensorShape] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    _rows: list[_Row] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self.locations and not self.shapes

    def index(self, identity: RunIdentity, sequence: int, skipped: int = 0) -> IndexFile:
        """Return the index file of this step.

        Args:
            identity: Run and worker.
            sequence: Its number among those of this worker.
            skipped: How many numbers right before it will never come.
        """
        names, dtypes, shapes, values, checksums = _columns(self._rows)
        return IndexFile(
            mode=self.record.mode,
            mode_step=self.record.mode_step,
            event_file_name=event_key(self.record.step, identity.worker) if self.events else None,
            locations=tuple(self.locations),
            shapes=tuple(self.shapes),
            statistics=Statistics(
                columns=STATISTICS_COLUMNS,
                tensors=names,
                dtypes=dtypes,
                shapes=shapes,
                values=np.array(values, dtype=np.float64).reshape(-1, len(STATISTICS_COLUMNS)),
                crc32c=checksums,
            ),
            run=identity.run_id,
            workers=identity.num_workers,
            sequence=sequence,
            skipped=skipped or None,
        )

    def add(self, name: str, tensor: CapturedTensor, statistics: Any) -> None:
        """Add a tensor: its value and reductions, or its shape; and its row of statistics."""
        try:
            checked_name(name)
        except ValueError as error:  # no reader would take an index file with this name in it
            self.errors.append(error)
            return
        checksum = None
        if tensor.raw is not None and 0 not in tensor.shape:
            stored = self._append(name, tensor.raw, tensor.wall_time)
            checksum = None if stored is None else stored[1]
        for reduced_name, snapshot in tensor.reductions:
            reduced = self._append(reduced_name, snapshot)
            if reduced is not None:
                value, crc32c = reduced
                shape = tuple(value.shape)
                self._rows.append((reduced_name, value.dtype.name, shape, NO_STATISTICS, crc32c))
        if checksum is None:
            self.shapes.append(TensorShape(name, name, tensor.shape))
        row = NO_STATISTICS if statistics is None else statistics
        if statistics is not None or checksum is not None:
            self._rows.append((name, tensor.dtype, tensor.shape, row, checksum))

    def _append(
        self, name: str, snapshot: Snapshot, wall_time: float | None = None
    ) -> tuple[NDArray[Any], int] | None:
        """Append a record, return value and checksum; None when it cannot be had or encoded."""
        record = self.record
        try:
            value = snapshot.array()
            encoded = encode_record(
                name,
                value,
                step=record.step,
                mode=record.mode,
                mode_step=record.mode_step,
                wall_time=record.wall_time if wall_time is None else wall_time,
            )
        except Exception as error:  # noqa: BLE001 - one bad tensor must not cost the others
            self.errors.append(error)
            return None
        self.locations.append(TensorLocation(name, self.num_event_bytes, encoded.length))
        self.events.extend(encoded.buffers)
        self.num_event_bytes += encoded.length
        return value, encoded.crc32c


def encode_step(record: StepRecord) -> EncodedStep:
    """Encode everything that was captured of a step; waits for statistics of a device.

    What cannot be encoded is left out and noted in `errors`; the rest of the step is complete.
    """
    encoded = EncodedStep(record)
    batches: dict[int, NDArray[np.float64] | None] = {}
    for name, tensor in record.tensors.items():
        batch = tensor.statistics
        if batch is None:
            encoded.add(name, tensor, None)
            continue
        if id(batch) not in batches:
            try:
                batches[id(batch)] = batch.rows()
            except Exception as error:  # noqa: BLE001 - the values are worth storing without
                encoded.errors.append(error)
                batches[id(batch)] = None
        rows = batches[id(batch)]
        encoded.add(name, tensor, None if rows is None else rows[tensor.row])
    return encoded


def _columns(rows: Sequence[_Row]) -> tuple[tuple[Any, ...], ...]:
    return tuple(zip(*rows, strict=True)) if rows else ((), (), (), (), ())
