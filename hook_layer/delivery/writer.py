"""Takes over captured data from the training thread; background threads encode and store it.

Memory is limited. When it is full, training waits or the step is dropped, as configured. If nothing
is stored for a while, training stops waiting until a step has left the memory.
`hook_layer.delivery.step_delivery` handles steps that cannot be stored.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hook_layer.capture.captured_step import StepRecord
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.delivery.counters import WriterCounters
from hook_layer.delivery.extended_step import extend_step
from hook_layer.delivery.small_files import Content
from hook_layer.delivery.step_delivery import StepDelivery
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.tensorboard import TensorBoardExporter
from hook_layer.delivery.wait_limit import Patience
from hook_layer.delivery.writer_threads import Task, WriterThreads
from hook_layer.storage.base import Store

__all__ = ["StepWriter", "WriterCounters"]

logger = logging.getLogger("stepwatch")

_ALIVE_CHECK_S: Final = 1.0
_DEFAULTS: Final = HookOptions()


class StepWriter:
    """Writes steps in the order in which they are handed over.

    Args:
        store: Destination.
        identity: Run and worker.
        options: Limits of memory and disk.
        sequence: Number of this worker's next index file.
        exporter: Called on a writer's thread with every step, even while the store is unavailable;
            errors are counted, and logged once.
        clock: Monotonic time, seconds.

    Attributes:
        counters: Results so far.
        submitted_sequence: Number of the newest step handed over; 0 before the first.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        *,
        options: HookOptions = _DEFAULTS,
        sequence: int = 1,
        exporter: TensorBoardExporter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._worker = store, identity.worker
        self._last_step: int | None = None
        self._delivery = StepDelivery(
            store,
            identity,
            spool_bytes=int(options.spool_bytes),
            spool_dir=options.spool_folder,
            sequence=sequence,
            clock=clock,
        )
        self.counters = self._delivery.counters
        self._options = options
        self._patience = Patience(options.max_wait_s, self.counters)
        self._exporter = exporter
        self._exporting = threading.Lock()
        self.submitted_sequence = sequence - 1
        self._clock = clock
        self._pid = os.getpid()
        self._has_refused = False
        self._threads = WriterThreads(self._delivery, clock=clock)
        self._changed = self._threads.changed

    def submit(self, record: StepRecord) -> None:
        """Hand a step over; wait for memory or drop the step, depending on `on_full`.

        Tensors of the step that was handed over last are added to its files. If it is not stored,
        they become the next step.
        """
        if os.getpid() != self._pid or not record.num_tensors:
            record.release()  # a fork has neither the thread nor a free lock
            return
        if record.step == self._last_step:
            if self._extends_last_step(record):
                return
            record.move_on()
        self._last_step = record.step
        nbytes = record.nbytes
        with self._changed:
            self.submitted_sequence += 1
            number = self.submitted_sequence
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
        """Skip the numbers of steps that were lost elsewhere."""
        with self._changed:
            self.submitted_sequence += num_steps

    def put_file(self, key: str, data: Content, *, is_last: bool = False) -> None:
        """Store a small file after the steps so far.

        Args:
            key: Its key.
            data: Its content, or a function that returns it when the file is stored.
            is_last: Whether to store it after everything else. If steps stay in the spool, it goes
                there, too.
        """
        files = self._delivery.files
        with self._changed:
            if is_last:
                files.put_last(key, data)
            else:
                put, owe = partial(files.put, key, data), partial(files.owe, key, data)
                self._threads.enqueue(Task(put, owe))

    def housekeep(self, what: str, action: Callable[[], object]) -> None:
        """Run an action whose failure does no harm, in the order of the other calls."""
        files = self._delivery.files
        with self._changed:
            now, later = partial(files.housekeep, what, action), partial(files.defer, what, action)
            self._threads.enqueue(Task(now, later))

    def close(self, timeout_s: float | None = None) -> bool:
        """Write pending data and end the threads.

        Data that cannot be stored in time stays in the spool; the log says where, and how to
        deliver it later. Refused data (missing bucket or permissions) is retried once, without
        waiting.

        Returns:
            Whether everything was stored, refused or lost in time.
        """
        if self._exporter is not None:
            with self._changed:
                self._threads.enqueue(Task(self._finish_exporting, self._finish_exporting))
        in_time, num_left = self._threads.close(timeout_s)
        self.counters.steps_undelivered += num_left
        self._delivery.leave()
        if self._exporter is not None:
            lost = self._exporter.steps_lost + self._exporter.steps_waiting
            self.counters.tensorboard_steps_lost = lost
        return in_time

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over so far is stored.

        Returns:
            False on timeout, or if steps wait on local disk for an unavailable store.
        """
        if os.getpid() != self._pid:
            return True  # the process that handed it over waits for it
        with self._changed:
            self._threads.hurry()
            is_idle = self._threads.idle.wait_for(lambda: self._threads.is_idle, timeout_s)
        return is_idle and not self._delivery.has_backlog

    def _extends_last_step(self, record: StepRecord) -> bool:
        """Add tensors to the files of the last step; return whether that was possible."""
        if not self.wait_until_idle(self._options.close_timeout_s):
            return False
        try:
            extend_step(self._store, self._worker, record)
        except (OSError, ValueError) as error:
            logger.warning("%s become a step: %s", ", ".join(record.tensors), error)
            return False
        self._export(record)
        record.release()
        return True

    def _make_room(self, nbytes: int) -> bool:
        """Wait until `nbytes` fit; return False if the step must be dropped."""
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
                return False  # memory will never be freed
            self._changed.wait(min(left_s, _ALIVE_CHECK_S))
            left_s = limit_s - (self._clock() - started)
        self._patience.waited(self._clock() - started)
        return self._fits(nbytes)

    def _refuse_late_step(self) -> None:
        if not self._has_refused:
            self._has_refused = True
            logger.error("a step came after the hook was closed and is dropped, as are later ones")

    def _fits(self, nbytes: int) -> bool:
        # A step that hangs at the store is not counted: later ones go to local disk, and the thread
        # for that starts only when a step waits.
        held = self._threads.held_bytes - self._threads.stuck_bytes
        return held == 0 or held + nbytes <= self._options.queue_bytes

    # On the writer's threads ---------------------------------------------------------------------

    def _process(
        self, store: Callable[[StepRecord, int], None], record: StepRecord, number: int
    ) -> None:
        try:
            store(record, number)
            self._export(record)  # last, because nobody waits for it
        finally:
            record.release()

    def _export(self, record: StepRecord) -> None:
        exporter = self._exporter
        if exporter is None:
            return
        if not self._exporting.acquire(blocking=False):  # the other thread hangs in the exporter
            self.counters.export_errors += 1
            return
        try:
            exporter(record)
        except Exception:
            if not self.counters.export_errors:
                logger.exception("exporting a step failed; training continues")
            self.counters.export_errors += 1
        finally:
            self.counters.tensorboard_steps_lost = exporter.steps_lost
            self._exporting.release()

    def _finish_exporting(self) -> None:
        exporter = self._exporter
        if exporter is None or not self._exporting.acquire(timeout=_ALIVE_CHECK_S):  # it hangs
            self.counters.export_errors += 1
            return
        try:
            exporter.close()
        except Exception:
            logger.exception("closing an exporter failed")
            self.counters.export_errors += 1
        finally:
            self._exporting.release()
