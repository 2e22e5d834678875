"""Takes over what the training thread captured; background threads encode, checksum and store it.

Training is never held up for long. Memory is bounded; when it is full, training waits or the step
is dropped, as asked. A wait ends after a while even if nothing moves, and then training waits no
more until a step left the memory again. `hook_layer.delivery.step_delivery` says what becomes of a
step that cannot be stored.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from hook_layer.capture import StepRecord
from hook_layer.delivery.counters import WriterCounters
from hook_layer.delivery.patience import Patience
from hook_layer.delivery.small_files import Content
from hook_layer.delivery.step_delivery import StepDelivery
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer_threads import Task, WriterThreads
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
        queue_bytes: How much captured data may wait in memory; one step alone may be larger, and
            one that is stuck at the store comes on top.
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


_DEFAULTS: Final = WriterOptions()


class StepWriter:
    """Writes steps in the order in which they are handed over.

    Args:
        store: Where to.
        identity: Run and worker.
        options: How much it may hold, and where.
        sequence: Number of this worker's next index file.
        exporters: Called on a writer's thread with every step, also while the store is away. The
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
        self._delivery = StepDelivery(
            store,
            identity,
            spool_bytes=options.spool_bytes,
            spool_dir=options.spool_dir,
            sequence=sequence,
            clock=clock,
        )
        self._options = options
        self._patience = Patience(options.max_wait_s, self.counters)
        self._exporters = tuple(exporters)
        self._exporting = threading.Lock()
        self._submitted_sequence = sequence - 1
        self._clock = clock
        self._pid = os.getpid()
        self._has_refused = False
        self._threads = WriterThreads(self._delivery, clock=clock)
        self._changed = self._threads.changed

    @property
    def counters(self) -> WriterCounters:
        """What became of the steps so far."""
        return self._delivery.counters

    @property
    def submitted_sequence(self) -> int:
        """Number of the newest step handed over, written, lost or waiting; 0 before the first."""
        return self._submitted_sequence

    def submit(self, record: StepRecord) -> None:
        """Hand a step over; waits for memory, or drops the step, as `on_full` says."""
        if os.getpid() != self._pid or not record.num_tensors:
            record.release()  # a fork has neither the thread nor a free lock
            return
        nbytes = record.nbytes
        with self._changed:
            self._submitted_sequence += 1
            number = self._submitted_sequence
            if self._threads.is_closing:
                self._refuse_late_step()
            if self._threads.is_closing or not self._make_room(nbytes):
                self.counters.steps_dropped += 1
                record.release()
                return
            self._threads.enqueue(
                Task(
                    partial(self._process, self._delivery.write, record, number),
                    partial(self._process, self._delivery.keep, record, number),
                    nbytes,
                )
            )

    def skip(self, num_steps: int) -> None:
        """Leave out the numbers of steps that were lost elsewhere, before the next one."""
        with self._changed:
            self._submitted_sequence += num_steps

    def put_file(self, key: str, data: Content, *, is_last: bool = False) -> None:
        """Store a small file after the steps so far.

        Args:
            key: Its key.
            data: Its content, or what returns it: called when the file's turn has come.
            is_last: Whether it comes at the end, behind everything else; it is left out, and put
                into the spool, when steps are left there.
        """
        files = self._delivery.files
        with self._changed:
            if is_last:
                files.put_last(key, data)
            else:
                put, owe = partial(files.put, key, data), partial(files.owe, key, data)
                self._threads.enqueue(Task(put, owe))

    def housekeep(self, what: str, action: Callable[[], object]) -> None:
        """Do something that may fail without harm, in the order of the other calls.

        Args:
            what: What it does, for the log.
            action: Does it.
        """
        files = self._delivery.files
        with self._changed:
            now, later = partial(files.housekeep, what, action), partial(files.defer, what, action)
            self._threads.enqueue(Task(now, later))

    def finish_exporting(self, close: Callable[[], object]) -> None:
        """Close an exporter after the steps so far, in any state of the store.

        Args:
            close: Closes it; an error is counted and logged.
        """
        task = partial(self._finish_exporting, close)
        with self._changed:
            self._threads.enqueue(Task(task, task))

    def close(self, timeout_s: float | None = None) -> bool:
        """Write what waits and end the threads.

        What cannot be stored in time stays in the spool, and the log says where, and how it is
        delivered later. What was refused (no bucket, no rights) is tried once more and not waited
        for.

        Args:
            timeout_s: How long to wait.

        Returns:
            Whether everything was stored, refused or lost in time.
        """
        in_time, num_left = self._threads.close(timeout_s)
        self.counters.steps_undelivered += num_left
        self._delivery.leave()
        return in_time

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over so far was stored.

        Returns:
            False if it took too long, or steps wait on local disk for a store that is away.
        """
        with self._changed:
            self._threads.hurry()
            is_idle = self._threads.idle.wait_for(lambda: self._threads.is_idle, timeout_s)
        return is_idle and not self._delivery.has_backlog

    def _make_room(self, nbytes: int) -> bool:
        """Wait until `nbytes` fit; False if the step must be dropped."""
        if self._fits(nbytes):
            return True
        limit_s = 0.0 if self._options.on_full == "drop" else self._patience.left_s()
        if limit_s <= 0:
            return False
        started = self._clock()
        self.counters.waits += 1
        self._threads.hurry()
        left_s = limit_s
        while left_s > 0 and not self._fits(nbytes):
            if not self._threads.are_alive():
                return False  # nobody will ever make room
            self._changed.wait(min(left_s, _ALIVE_CHECK_S))
            left_s = limit_s - (self._clock() - started)
        self._patience.waited(self._clock() - started)
        return self._fits(nbytes)

    def _refuse_late_step(self) -> None:
        if not self._has_refused:
            self._has_refused = True
            logger.error("a step came after the hook was closed and is dropped, as are later ones")

    def _fits(self, nbytes: int) -> bool:
        # A step that is stuck at the store is not counted: those behind it go to local disk, and
        # the thread that puts them there is not begun before one waits.
        held = self._threads.held_bytes - self._threads.stuck_bytes
        return held == 0 or held + nbytes <= self._options.queue_bytes

    # On the writer's threads ---------------------------------------------------------------------

    def _process(
        self, store: Callable[[StepRecord, int], None], record: StepRecord, number: int
    ) -> None:
        try:
            store(record, number)
            self._export(record)  # afterwards: nobody waits for this
        finally:
            record.release()

    def _export(self, record: StepRecord) -> None:
        if not self._exporters:
            return
        if not self._exporting.acquire(blocking=False):  # the other thread is stuck in an exporter
            self.counters.export_errors += 1
            return
        try:
            for export in self._exporters:
                self._export_to(export, record)
        finally:
            self._exporting.release()

    def _export_to(self, export: Exporter, record: StepRecord) -> None:
        try:
            export(record)
        except Exception:
            if not self.counters.export_errors:
                logger.exception("exporting a step failed; training continues")
            self.counters.export_errors += 1

    def _finish_exporting(self, close: Callable[[], object]) -> None:
        if not self._exporting.acquire(timeout=_ALIVE_CHECK_S):  # stuck, on the other thread
            self.counters.export_errors += 1
            return
        try:
            close()
        except Exception:
            logger.exception("closing an exporter failed")
            self.counters.export_errors += 1
        finally:
            self._exporting.release()
