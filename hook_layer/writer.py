"""The one background thread that encodes, checksums and stores what the training thread captured.

It never holds training up for long. Memory is bounded; when it is full, training waits or the step
is dropped, as asked. A wait ends after a while even if nothing moves (a store that neither answers
nor fails), and then training waits no more until something was stored again. `hook_layer.delivery`
says what becomes of a step that cannot be stored.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from hook_layer.capture import StepRecord
from hook_layer.delivery import Content, StepDelivery, WriterCounters
from hook_layer.step_files import RunIdentity
from hook_layer.storage.base import Store

__all__ = [
    "DEFAULT_MAX_WAIT_S",
    "DEFAULT_QUEUE_BYTES",
    "DEFAULT_SPOOL_BYTES",
    "Exporter",
    "OnFull",
    "StepWriter",
    "WriterCounters",
    "WriterOptions",
]

logger = logging.getLogger("stepwatch")

OnFull = Literal["wait", "drop"]
"""What happens to a step for which there is no memory: training waits, or the step is dropped."""

Exporter: TypeAlias = "Callable[[StepRecord], None]"
"""Puts a step into some other form."""

DEFAULT_QUEUE_BYTES: Final = 512 << 20
DEFAULT_SPOOL_BYTES: Final = 2 << 30
DEFAULT_MAX_WAIT_S: Final = 30.0
_ALIVE_CHECK_S: Final = 1.0


@dataclass(frozen=True)
class WriterOptions:
    """How much a writer may hold, and where.

    Attributes:
        queue_bytes: How much captured data may wait in memory; one step alone may be larger.
        on_full: What happens to a step that does not fit.
        max_wait_s: How long training may wait for memory, seconds: at one step, and at all steps
            together between one that left the memory and the next.
        spool_bytes: How much may wait on local disk while the store is away; 0: nothing.
        spool_dir: Folder for that; None: one of the system's folder for temporary files.
    """

    queue_bytes: int = DEFAULT_QUEUE_BYTES
    on_full: OnFull = "wait"
    max_wait_s: float = DEFAULT_MAX_WAIT_S
    spool_bytes: int = DEFAULT_SPOOL_BYTES
    spool_dir: str | None = None


@dataclass
class _Task:
    """Something to do, and how many steps were dropped right before it."""

    run: Callable[[], None]
    nbytes: int = 0
    record: StepRecord | None = None
    dropped_before: int = 0


_DEFAULTS: Final = WriterOptions()


class StepWriter:
    """Writes steps in the order in which they are handed over.

    Args:
        store: Where to.
        identity: Run and worker.
        options: How much it may hold, and where.
        sequence: Number of this worker's next index file.
        exporters: Called on the writer's thread with every step, also while the store is away. The
            record must not be kept; an error is counted, and logged once.
        clock: Returns a time that only grows, seconds.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        *,
        options: WriterOptions = _DEFAULTS,
        sequence: int = 1,
        exporters: Sequence[Exporter] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delivery = StepDelivery(store, identity, sequence=sequence, clock=clock)
        self._queue_bytes = options.queue_bytes
        self._on_full = options.on_full
        self._patience = _Patience(options.max_wait_s, self.counters)
        self._exporters = tuple(exporters)
        self._submitted_sequence = sequence - 1
        self._clock = clock
        self._pid = os.getpid()
        self._tasks: deque[_Task] = deque()
        self._num_dropped = 0
        self._held_bytes = 0
        self._busy = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def counters(self) -> WriterCounters:
        """What became of the steps so far."""
        return self._delivery.counters

    @property
    def last_sequence(self) -> int:
        """Number of the last step that was dealt with, stored or lost; 0 before the first."""
        return self._delivery.last_sequence

    @property
    def submitted_sequence(self) -> int:
        """Number of the newest step handed over, written, lost or waiting; 0 before the first."""
        return self._submitted_sequence

    def submit(self, record: StepRecord) -> None:
        """Hand a step over; waits for memory, or drops the step, as `on_full` says."""
        if os.getpid() != self._pid:
            record.release()  # a fork has neither the thread nor a free lock
            return
        nbytes = record.nbytes
        with self._changed:
            self._submitted_sequence += 1
            if not self._make_room(nbytes):
                self._num_dropped += 1
                self.counters.steps_dropped += 1
                record.release()
                return
            self._held_bytes += nbytes
            self._enqueue(_Task(partial(self._delivery.write, record), nbytes, record))

    def skip(self, num_steps: int) -> None:
        """Leave out the numbers of steps that were lost elsewhere, before the next one."""
        with self._changed:
            self._num_dropped += num_steps
            self._submitted_sequence += num_steps

    def put_file(self, key: str, data: Content, *, is_last: bool = False) -> None:
        """Store a small file behind the steps handed over so far.

        Args:
            key: Its key.
            data: Its content, or what returns it: called when the file's turn has come.
            is_last: Whether it comes behind everything that could not be stored before, and is
                tried even while the store fails.
        """
        with self._changed:
            self._enqueue(_Task(partial(self._delivery.put_file, key, data, is_last=is_last)))

    def housekeep(self, what: str, action: Callable[[], object]) -> None:
        """Do something that may fail without harm, in the order of the other calls.

        Args:
            what: What it does, for the log.
            action: Does it.
        """
        with self._changed:
            self._enqueue(_Task(partial(self._delivery.housekeep, what, action)))

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
        limit_s = 0.0 if self._on_full == "drop" else self._patience.left_s()
        if limit_s <= 0:
            return False
        started = self._clock()
        self.counters.waits += 1
        left_s = limit_s
        while left_s > 0 and not self._fits(nbytes):
            if self._thread is None or not self._thread.is_alive():
                return False  # nobody will ever make room
            self._changed.wait(min(left_s, _ALIVE_CHECK_S))
            left_s = limit_s - (self._clock() - started)
        self._patience.waited(self._clock() - started)
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + nbytes <= self._queue_bytes

    def _enqueue(self, task: _Task) -> None:
        task.dropped_before, self._num_dropped = self._num_dropped, 0
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
                    break
                task = self._tasks.popleft()
                self._busy = True
            try:
                self._run(task)
            finally:
                with self._changed:
                    self._held_bytes -= task.nbytes
                    self._busy = False
                    self._changed.notify_all()
        self._delivery.finish()

    def _run(self, task: _Task) -> None:
        try:
            self._delivery.skip(task.dropped_before)
            task.run()
            if task.record is not None:
                for export in self._exporters:  # afterwards: nobody waits for these
                    self._export(export, task.record)
        except Exception:  # nothing may end this thread
            logger.exception("the writer failed; training goes on")
        finally:
            if task.record is not None:
                task.record.release()

    def _export(self, export: Exporter, record: StepRecord) -> None:
        try:
            export(record)
        except Exception:
            if not self.counters.export_errors:
                logger.exception("exporting a step failed; training goes on")
            self.counters.export_errors += 1


class _Patience:
    """How long training may still wait for memory.

    Args:
        max_wait_s: Bound of all waits from one stored step to the next, seconds.
        counters: Where the waits are counted, and what tells that a step was stored.
    """

    def __init__(self, max_wait_s: float, counters: WriterCounters) -> None:
        self._max_wait_s = max_wait_s
        self._counters = counters
        self._waited_s = 0.0
        self._written = 0
        self._has_complained = False

    def left_s(self) -> float:
        """Return how long the next wait may last, seconds."""
        self._forget_if_written()
        return self._max_wait_s - self._waited_s

    def waited(self, wait_s: float) -> None:
        """Note a wait of `wait_s` seconds."""
        self._counters.wait_s += wait_s
        if not self._forget_if_written():
            self._waited_s += wait_s
        if self.left_s() <= 0 and not self._has_complained:
            self._has_complained = True
            logger.error(
                "nothing was stored for %.0f s while training waited; steps are dropped, and "
                "training waits no more until something is stored",
                self._waited_s,
            )

    def _forget_if_written(self) -> bool:
        """Begin anew if a step was stored since the last call."""
        written = self._counters.steps_written
        if written == self._written:
            return False
        self._written, self._waited_s = written, 0.0
        return True
