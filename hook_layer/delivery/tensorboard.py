"""Writes TensorBoard files: scalars and histograms of every saved step, on the writer's thread.

Each mode has a folder, which is a run in TensorBoard: `TRAIN/`, `EVAL/`, ... With several workers,
the first one's files are there, and those of the others in subfolders (`TRAIN/worker_1/`), so that
values of different workers do not mix. The x axis is the global step.

**Number of files.** The original writes one file per saved step. TensorBoard's data server keeps
all files of all runs open, and fails if a process may open at most 1,024; its Python reader lists
and sorts a folder again for every file, which is quadratic. Both read a folder's files in the order
of their names, and neither reads a replaced file again. So

* if a store can append (a folder), every mode has one file, and a step is visible at once;
* otherwise (S3), steps are batched, and an object is never rewritten. The first step is stored at
  once, the next after 10 seconds. Later intervals are a 50th of the run's age: a run of ten hours
  has about 260 objects per mode. `close` stores the rest; TensorBoard lacks it if the process is
  killed.

Names begin with the first step in the file. Data that cannot be stored stays in memory, up to a
limit, and is retried rarely, because the writer's thread must store the steps themselves.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hook_layer.capture.captured_step import CapturedTensor, StepRecord
from hook_layer.capture.histogram import HistogramCounter
from hook_layer.delivery.circuit_breaker import CircuitBreaker
from hook_layer.format.summary import (
    clean_tag,
    encode_file_head,
    encode_histogram,
    encode_scalar,
    summary_file_key,
)
from hook_layer.storage.base import AppendStore, ObjectNotFoundError, Store

__all__ = ["TensorBoardExporter"]

logger = logging.getLogger("stepwatch")

_SHORTEST_PAUSE_S: Final = 10.0
_SHARE_OF_AGE: Final = 0.02
_MAX_GATHERED_BYTES: Final = 8 << 20
_MAX_WAITING_BYTES: Final = 32 << 20
_FIRST_RETRY_S: Final = 30.0
_LONGEST_RETRY_S: Final = 600.0
_NUMERIC: Final = "iuf"
_NUMERIC_OR_BOOL: Final = "biuf"

_writers: dict[tuple[str, str | None, str], int] = {}
_writers_lock = threading.Lock()


class TensorBoardExporter:
    """Writes summaries of steps for TensorBoard.

    Errors of a step are raised after everything else of it is done. Data that could not be stored
    is kept for the next call. Not thread-safe.

    Args:
        store: Root of the folders of the modes.
        worker: Name of a worker whose files go into subfolders; None: the first one.
        clock: Monotonic time, seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        worker: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._writer = _writer_name(store.uri, worker)
        self._counter: HistogramCounter | None = None
        self._runs: dict[str, _Run] = {}
        self._first_put_at: float | None = None
        self._next_put_at = 0.0
        self._breaker = CircuitBreaker(
            max_failures=1,
            first_pause_s=_FIRST_RETRY_S,
            longest_pause_s=_LONGEST_RETRY_S,
            clock=clock,
        )
        self.steps_lost = 0

    @property
    def steps_waiting(self) -> int:
        """Number of steps that are not stored yet."""
        return sum(run.num_waiting for run in self._runs.values())

    def __call__(self, record: StepRecord) -> None:
        """Export a step.

        Raises:
            Exception: The first error; everything else of the step is exported.
        """
        events, error = self._encoded(record)
        if events:
            self._keep(record, events)
        if self._is_due():
            self._put()
        if error is not None:
            raise error

    def close(self) -> None:
        """Store pending data.

        Raises:
            StorageError: Storing failed.
        """
        if self.steps_lost:
            logger.warning("%s lacks %d steps", self._store.uri, self.steps_lost)
        self._put()

    # Content of a step ----------------------------------------------------------------------------

    def _encoded(self, record: StepRecord) -> tuple[list[bytes], Exception | None]:
        """Return a step's events, and the first error."""
        events: list[bytes] = []
        first_error: Exception | None = None
        for name, tensor in record.tensors.items():
            if tensor.summaries is None:
                continue
            try:
                events += self._events_of(name, tensor, record)
            except Exception as error:  # noqa: BLE001 - one bad tensor must not affect the others
                first_error = first_error or error
        return events, first_error

    def _events_of(self, name: str, tensor: CapturedTensor, record: StepRecord) -> list[bytes]:
        summaries, snapshot = tensor.summaries, tensor.shown
        if summaries is None or snapshot is None:
            return []
        array = snapshot.array()
        step, wall_time = record.step, tensor.wall_time
        if wall_time is None:
            wall_time = record.wall_time
        events = []
        if summaries.scalar and array.size == 1 and array.dtype.kind in _NUMERIC_OR_BOOL:
            events.append(encode_scalar(clean_tag(name), float(array.item()), step, wall_time))
        if summaries.histograms and array.dtype.kind in _NUMERIC:
            self._counter = self._counter or HistogramCounter()
            histogram = self._counter.summary(array)
            if histogram is not None:
                tags = [clean_tag(f"{collection}/{name}") for collection in summaries.histograms]
                events += [encode_histogram(tag, histogram, step, wall_time) for tag in tags]
        return events

    # Storing --------------------------------------------------------------------------------------

    def _keep(self, record: StepRecord, events: list[bytes]) -> None:
        num_bytes = sum(map(len, events))
        waiting = sum(run.waiting_bytes for run in self._runs.values())
        if waiting and waiting + num_bytes > _MAX_WAITING_BYTES:
            self.steps_lost += 1
            if self.steps_lost == 1:
                logger.error(
                    "%s cannot be written to; TensorBoard will lack steps from %d on",
                    self._store.uri,
                    record.step,
                )
            return
        folder = record.mode.name if self._worker is None else f"{record.mode.name}/{self._worker}"
        if folder not in self._runs:
            self._runs[folder] = _Run(self._store, folder, self._writer)
        self._runs[folder].add(record.step, record.wall_time, events)

    def _is_due(self) -> bool:
        if not self._breaker.allows():
            return False
        if isinstance(self._store, AppendStore) or self._clock() >= self._next_put_at:
            return True
        return sum(run.waiting_bytes for run in self._runs.values()) >= _MAX_GATHERED_BYTES

    def _put(self) -> None:
        """Store pending data.

        Raises:
            StorageError: Storing failed.
        """
        waiting = [run for run in self._runs.values() if run.waiting_bytes]
        if not waiting:
            return
        first_error: Exception | None = None
        for run in waiting:
            try:
                run.put()
            except Exception as error:  # noqa: BLE001, PERF203 - one folder must not affect the others
                first_error = first_error or error
        if first_error is not None:
            self._breaker.failed()
            raise first_error
        self._breaker.succeeded()
        now = self._clock()
        if self._first_put_at is None:
            self._first_put_at = now
        pause_s = max(_SHORTEST_PAUSE_S, _SHARE_OF_AGE * (now - self._first_put_at))
        self._next_put_at = now + pause_s


class _Run:
    """The files of one folder, and its pending data."""

    def __init__(self, store: Store, folder: str, writer: str) -> None:
        self._store = store
        self._folder = folder
        self._writer = writer
        self._waiting: list[bytes] = []
        self.num_waiting = 0
        self._first: tuple[int, float] = (0, 0.0)  # step and wall time of the oldest pending data
        self._is_restart = True
        self._growing: tuple[str, int] | None = None  # key and size
        self.waiting_bytes = 0

    def add(self, step: int, wall_time: float, events: list[bytes]) -> None:
        """Add the events of a step."""
        if not self._waiting:
            self._first = (step, wall_time)
        self._waiting += events
        self.num_waiting += 1
        self.waiting_bytes += sum(map(len, events))

    def put(self) -> None:
        """Store pending data after the stored data.

        Raises:
            StorageError: Storing failed; everything stays pending.
        """
        step, wall_time = self._first
        key = summary_file_key(self._folder, step, self._writer)
        head = encode_file_head(step, wall_time, is_restart=self._is_restart)
        if isinstance(self._store, AppendStore):
            self._append(self._store, key, head)
        else:
            self._store.put(key, [head, *self._waiting])
        self._is_restart = False
        self._waiting.clear()
        self.waiting_bytes = self.num_waiting = 0

    def _append(self, store: AppendStore, key: str, head: bytes) -> None:
        """Append to the growing file; create it if there is none."""
        if self._growing is not None:
            # A file that fails, or was removed by others, is left unchanged.
            (grown, size), self._growing = self._growing, None
            with suppress(ObjectNotFoundError):
                store.append(grown, self._waiting, size)
                self._growing = (grown, size + self.waiting_bytes)
                return
        store.append(key, [head, *self._waiting], 0)
        self._growing = (key, len(head) + self.waiting_bytes)


def _writer_name(uri: str, worker: str | None) -> str:
    """Return a name that no other writer of this store has."""
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    name = f"{os.getpid()}_{host}"
    with _writers_lock:
        key = (uri, worker, name)
        number = _writers[key] = _writers.get(key, 0) + 1
    return name if number == 1 else f"{name}-{number}"
