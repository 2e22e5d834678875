"""The one background thread that encodes, checksums and stores what the training thread captured.

It never holds training up for long: memory is bounded, and when storing fails the step is counted
as undelivered and its memory given back. After a few failures in a row nothing more is tried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from hook_layer.capture import StepRecord
from hook_layer.format.paths import event_key, index_key
from hook_layer.step_files import RunIdentity, encode_step
from hook_layer.storage.base import Store

__all__ = ["DEFAULT_QUEUE_BYTES", "OnFull", "StepWriter", "WriterCounters"]

logger = logging.getLogger("stepwatch")

OnFull = Literal["wait", "drop"]
"""What happens to a step for which there is no memory: training waits, or the step is dropped."""

DEFAULT_QUEUE_BYTES: Final = 512 << 20
_MAX_FAILURES_IN_A_ROW: Final = 3
_ALIVE_CHECK_S: Final = 1.0


@dataclass
class WriterCounters:
    """What became of the steps that were handed over.

    Attributes:
        steps_written: Steps whose index file is stored.
        steps_dropped: Steps given up because the queue was full (`on_full="drop"`).
        steps_undelivered: Steps that could not be stored.
        tensors_left_out: Tensors of written steps whose type cannot be stored.
        bytes_written: Bytes of event and index files.
        waits: How often training waited for memory.
        wait_s: For how long together, seconds.
        errors: Storage errors.
        first_error: The first of them.
    """

    steps_written: int = 0
    steps_dropped: int = 0
    steps_undelivered: int = 0
    tensors_left_out: int = 0
    bytes_written: int = 0
    waits: int = 0
    wait_s: float = 0.0
    errors: int = 0
    first_error: str | None = None


@dataclass
class _Task:
    run: Callable[[], None]
    nbytes: int = 0
    record: StepRecord | None = None
    required: bool = field(default=False)


class StepWriter:
    """Writes steps in the order in which they are handed over.

    Args:
        store: Where to.
        identity: Run and worker.
        queue_bytes: How much captured data may wait; one step alone may be larger.
        on_full: What happens to a step that does not fit.
        sequence: Number of this worker's next index file.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        *,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        on_full: OnFull = "wait",
        sequence: int = 1,
    ) -> None:
        self.counters = WriterCounters()
        self._store = store
        self._identity = identity
        self._queue_bytes = queue_bytes
        self._on_full = on_full
        self._sequence = sequence
        self._tasks: deque[_Task] = deque()
        self._held_bytes = 0
        self._failures_in_a_row = 0
        self._busy = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def is_off(self) -> bool:
        """Whether storing failed too often and steps are only counted."""
        return self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW

    def submit(self, record: StepRecord) -> None:
        """Hand a step over; waits for memory, or drops the step, as `on_full` says."""
        nbytes = record.nbytes
        with self._changed:
            if not self._make_room(nbytes):
                self.counters.steps_dropped += 1
                record.release()
                return
            self._held_bytes += nbytes
            self._enqueue(_Task(lambda: self._write(record), nbytes, record))

    @property
    def last_sequence(self) -> int:
        """Number of the last index file whose storing was tried; 0 before the first."""
        return self._sequence - 1

    def put_file(
        self, key: str, data: bytes | Callable[[], bytes], *, required: bool = False
    ) -> None:
        """Store a small file behind the steps handed over so far.

        Args:
            key: Its key.
            data: Its content, or what returns it: called when the file's turn has come.
            required: Whether it is tried even after storing was given up.
        """

        def put() -> None:
            self._store.put(key, data if isinstance(data, bytes) else data())

        with self._changed:
            self._enqueue(_Task(put, required=required))

    def delete_file(self, key: str) -> None:
        """Remove a file, in the order of the other calls."""
        with self._changed:
            self._enqueue(_Task(lambda: self._store.delete(key), required=True))

    def close(self, timeout_s: float | None = None) -> bool:
        """Write what waits and end the thread.

        Args:
            timeout_s: How long to wait for that; what is left then counts as undelivered.

        Returns:
            Whether everything was dealt with in time.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is None or not self._thread.is_alive():
            self._work()  # no thread could be started, or a fork took it away
            return True
        self._thread.join(timeout_s)
        with self._changed:
            left = [task.record for task in self._tasks if task.record is not None]
            self.counters.steps_undelivered += len(left)
            self._tasks.clear()
        return not self._thread.is_alive()

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over so far was dealt with; False if it took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tasks and not self._busy, timeout_s)

    def _make_room(self, nbytes: int) -> bool:
        """Wait until `nbytes` fit; False if the step is to be dropped."""
        if self._fits(nbytes):
            return True
        if self._on_full == "drop":
            return False
        started = time.perf_counter()
        self.counters.waits += 1
        while not self._fits(nbytes):
            if self._thread is None or not self._thread.is_alive():
                return False  # nobody will ever make room
            self._changed.wait(_ALIVE_CHECK_S)
        self.counters.wait_s += time.perf_counter() - started
        return True

    def _fits(self, nbytes: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + nbytes <= self._queue_bytes

    def _enqueue(self, task: _Task) -> None:
        self._tasks.append(task)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="stepwatch-writer", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down; close() does the work
                self._thread = None

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or self._closing)
                if not self._tasks:
                    return
                task = self._tasks.popleft()
                self._busy = True
            try:
                self._run(task)
            finally:
                with self._changed:
                    self._held_bytes -= task.nbytes
                    self._busy = False
                    self._changed.notify_all()

    def _run(self, task: _Task) -> None:
        try:
            if self.is_off and not task.required:
                if task.record is not None:
                    self.counters.steps_undelivered += 1
                return
            task.run()
            if task.record is not None:
                self._failures_in_a_row = 0
        except Exception as error:  # noqa: BLE001 - nothing may end this thread
            self._failed(task, error)
        finally:
            if task.record is not None:
                task.record.release()

    def _failed(self, task: _Task, error: Exception) -> None:
        self.counters.errors += 1
        self._failures_in_a_row += 1
        if task.record is not None:
            self.counters.steps_undelivered += 1
        if self.counters.first_error is None:
            self.counters.first_error = f"{type(error).__name__}: {error}"
            logger.error("saving to %s failed; training goes on", self._store.uri, exc_info=error)
        if self._failures_in_a_row == _MAX_FAILURES_IN_A_ROW:
            logger.error(
                "saving to %s failed %d times in a row and is switched off: %s",
                self._store.uri,
                _MAX_FAILURES_IN_A_ROW,
                error,
            )

    def _write(self, record: StepRecord) -> None:
        encoded = encode_step(record)
        if encoded.errors:
            if not self.counters.tensors_left_out:
                logger.warning("left out of the saved steps: %s", encoded.errors[0])
            self.counters.tensors_left_out += len(encoded.errors)
        if encoded.is_empty:
            return
        worker = self._identity.worker
        if encoded.events:
            self._store.put(event_key(record.step, worker), encoded.events)
        index = encoded.index(self._identity, self._sequence).encode()
        # Taken before the file is stored: one that failed may be there all the same, and a gap
        # makes readers look for it.
        self._sequence += 1
        self._store.put(index_key(record.step, worker), index)
        self.counters.steps_written += 1
        self.counters.bytes_written += encoded.num_event_bytes + len(index)
