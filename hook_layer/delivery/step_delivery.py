"""Stores steps on the writer's threads, and counts steps that could not be stored.

**Nothing is lost while the store is unavailable.** A step that cannot be stored goes to the spool,
a folder on local disk, with its number. Later steps follow it there. All are delivered in order
when the store is available again; `hook_layer.delivery.circuit_breaker` decides when to try. Steps
are lost only if the spool is full.

**Every gap is visible.** Each step has a number, even if it is lost. An index file contains the
number of lost steps directly before it, so a reader does not wait for them. The end marker counts
steps that are lost after the last index file.

**An index file that failed is retried before any other.** It may exist already, because the
response can be lost after the request succeeded.

**A step that keeps failing does not delay the others.** If the store accepts the next step, the
failing one stays in the spool and is retried once at the end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hook_layer.capture.captured_step import StepRecord
from hook_layer.delivery.backlog import Backlog, WaitingStep
from hook_layer.delivery.counters import WriterCounters
from hook_layer.delivery.small_files import SmallFiles
from hook_layer.delivery.spool_folder import SpoolTarget, StepFiles
from hook_layer.delivery.step_files import EncodedStep, RunIdentity, encode_step
from hook_layer.delivery.store_health import StoreHealth
from hook_layer.format.errors import IndexTooLongError
from hook_layer.format.index import IndexFile
from hook_layer.format.merged_calls import shortened
from hook_layer.format.paths import event_key, index_key
from hook_layer.storage.base import Buffers, Store, StoreRefusedError

__all__ = ["StepDelivery"]

logger = logging.getLogger("stepwatch")

_ATTEMPTS_IF_REFUSED: Final = 3
_ATTEMPTS_IF_AWAY: Final = 5
"""Failures of one step after which the next step is tried."""


class StepDelivery:
    """Stores one worker's steps in order of their numbers; never raises.

    One thread calls `write` and `advance`, which use the store. Meanwhile another thread may call
    `keep`, which does not.

    Attributes:
        counters: Counts results.
        health: State of the store for steps.
        files: The small files of the trial.
        backlog: The waiting steps.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        *,
        spool_bytes: int = 0,
        spool_dir: str | None = None,
        sequence: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = WriterCounters()
        self.health = StoreHealth(store.uri, self.counters, clock=clock)
        self.files = SmallFiles(store, self.health, self.counters, clock=clock)
        self._target = store
        self._identity = identity
        self._last_stored = sequence - 1
        self._in_flight: tuple[EncodedStep, int] | None = None
        self._has_left = False
        self._has_tried_aside = False
        target = SpoolTarget(store.uri, identity.run_id, identity.worker)
        self.backlog = Backlog(target, max_bytes=spool_bytes, parent=spool_dir)
        self._lock = threading.RLock()

    # State of the backlog ------------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        """Whether steps wait to be stored."""
        return bool(self.backlog.order)

    @property
    def is_done(self) -> bool:
        """Whether nothing waits, or what waits was left in the spool."""
        has_aside = self.backlog.aside and not self._has_tried_aside
        is_empty = not self.has_backlog and not has_aside and self.files.is_done
        return is_empty or self._has_left

    @property
    def is_hopeless(self) -> bool:
        """Whether the waiting data was refused: retries fail until a person fixes the cause."""
        return self.health.is_refused if self.has_backlog else self.files.is_hopeless

    def wait_s(self) -> float:
        """Return the time until calling `advance` makes sense, seconds; 0: now."""
        return self.health.breaker.wait_s() if self.has_backlog else self.files.wait_s()

    # Steps ---------------------------------------------------------------------------------------

    def write(self, record: StepRecord, number: int) -> None:
        """Store a step after those that wait, or add it to them."""
        may_try = self.health.breaker.allows()
        while may_try and self.has_backlog and self._deliver_first():
            pass
        encoded = self._encoded(record)
        if encoded is None:
            return
        if self.has_backlog or not may_try:
            self._keep(encoded, number)
            return
        self._in_flight = (encoded, number)
        try:
            self._store(encoded, number)
        finally:
            self._in_flight = None

    def keep(self, record: StepRecord, number: int) -> None:
        """Put a step into the spool; arguments as for `write`."""
        encoded = self._encoded(record)
        if encoded is not None:
            self._keep(encoded, number)

    def advance(self) -> None:
        """Try to store the first waiting step, or the small files if no step waits."""
        if self.has_backlog:
            self._deliver_first()
            return
        if not self._has_tried_aside:
            self._has_tried_aside = True
            for step in self.backlog.aside:
                self._deliver(step)
        self.files.finish()

    def _encoded(self, record: StepRecord) -> EncodedStep | None:
        """Encode a step; return None and count it as lost if nothing of it can be stored."""
        try:
            encoded = encode_step(record)
        except Exception as error:  # noqa: BLE001 - not an error of the store
            self.health.lost_by(error)
            return None
        with self._lock:
            if encoded.errors and not self.counters.tensors_left_out:
                logger.warning("tensors are missing in saved steps: %s", encoded.errors[0])
            self.counters.tensors_left_out += len(encoded.errors)
        if encoded.is_empty:
            self.health.lost()
            return None
        return encoded

    def _store(self, encoded: EncodedStep, number: int) -> None:
        """Store the event file, then the index file; a step that fails waits or is lost."""
        error, described = self._try_to_store(encoded, number)
        is_refused = error is None or isinstance(error, StoreRefusedError)
        if not (
            is_refused
            or self.health.breaker.has_opened
            or self.backlog.has_room(encoded.events.nbytes)
        ):
            error, described = self._try_to_store(encoded, number)  # retry once
        with self._lock:
            if error is not None and not self._has_left:
                self._keep(encoded, number, is_doubtful=described is not None)
                self.health.failed(error)
            elif described is not None and not self._has_left:
                self._note_stored(described[0])
        if error is None:
            self.files.pay_if_due()

    def _try_to_store(
        self, encoded: EncodedStep, number: int
    ) -> tuple[Exception | None, tuple[WaitingStep, StepFiles] | None]:
        """Return the error, and the description of the step if its event file is stored."""
        key = event_key(encoded.record.step, self._identity.worker)
        error = self._put(key, encoded.events) if encoded.events.nbytes else None
        described = None if error is not None else self._described(encoded, number)
        if described is not None:
            error = self._put(described[1].index_key, described[1].index_data)
        return error, described

    def _keep(self, encoded: EncodedStep, number: int, *, is_doubtful: bool = False) -> None:
        """Let a step wait; if there is no room, keep its index file if it may be stored already."""
        described = self._described(encoded, number)
        if described is None:
            return
        step, files = described
        with self._lock:
            try:
                self.backlog.add(step, files, encoded.events if encoded.events.nbytes else None)
            except Exception as error:  # noqa: BLE001 - any error loses the step, and is counted
                self.health.lost(error)
                if is_doubtful:
                    self.backlog.add_index(step, files)
            else:
                self.counters.steps_spooled += 1
            self._count_backlog()

    def _described(self, encoded: EncodedStep, number: int) -> tuple[WaitingStep, StepFiles] | None:
        """Return the description of a step and its index file; None if the step is lost.

        The event file must have been read before, for the checksums.
        """
        before = max(self.backlog.previous(number), self._last_stored)
        if self._in_flight is not None and self._in_flight[1] < number:
            before = max(before, self._in_flight[1])
        skipped = number - before - 1
        try:
            index = self._index_data(
                encoded.record.step, encoded.index(self._identity, number, skipped)
            )
        except Exception as error:  # noqa: BLE001 - any error loses the step, and is counted
            self.health.lost_by(error)
            return None
        step = WaitingStep(number, encoded.num_tensors, encoded.events.nbytes + len(index))
        return step, StepFiles(None, index_key(encoded.record.step, self._identity.worker), index)

    def _index_data(self, step: int, index: IndexFile) -> bytes:
        """Return an index file's bytes; shorten it if it is too long for readers."""
        try:
            return index.encode()
        except IndexTooLongError as error:
            short = shortened(index)
            with self._lock:
                self.counters.steps_shortened += 1
                self.counters.tensors_left_out += short.num_left_out
                is_first = self.counters.steps_shortened == 1
            if is_first:
                logger.warning(
                    "step %d: %s, so calls of a module have one entry, with the statistics of all "
                    "and the value of the first; %d tensors are left out",
                    step,
                    error,
                    short.num_left_out,
                )
            return short.data

    def _deliver_first(self) -> bool:
        """Try to store the first waiting step; return whether it no longer waits."""
        first, *others = self.backlog.head()
        if self._deliver(first):
            return True
        if first.files is not None and first.attempts >= _ATTEMPTS_IF_REFUSED:
            self.backlog.remove(first)
            return True
        enough = _ATTEMPTS_IF_REFUSED if self.health.is_refused else _ATTEMPTS_IF_AWAY
        if first.attempts >= enough and others:
            self._deliver(others[0])
            if self._last_stored == others[0].number:
                self.backlog.set_aside(first)
                return True
        return False

    def _deliver(self, step: WaitingStep) -> bool:
        """Try to store a waiting step; return whether it no longer waits."""
        try:
            files = self.backlog.read(step)
            if step.number > self._last_stored:
                files = files.with_skipped(step.number - self._last_stored - 1)
        except (OSError, ValueError) as unreadable:  # the spool was changed by others
            self.health.lost_by(unreadable)
            self.backlog.remove(step)
            self._count_backlog()
            return True
        step.attempts += 1
        error = self.health.call(partial(files.store_in, self._target))
        with self._lock:
            if self._has_left:
                return True
            if error is not None:
                self.health.failed(error)
                return False
            self.backlog.remove(step)
            if step.files is not None:
                self.counters.steps_undelivered -= 1
            self._note_stored(step)
        self.files.pay_if_due()
        return True

    def _put(self, key: str, data: Buffers) -> Exception | None:
        return self.health.call(partial(self._target.put, key, data))

    def _note_stored(self, step: WaitingStep) -> None:
        self._last_stored = max(self._last_stored, step.number)
        self.counters.steps_written += 1
        self.counters.tensors_written += step.num_tensors
        self.counters.bytes_written += step.num_bytes
        self._count_backlog()
        self.health.succeeded()

    def _count_backlog(self) -> None:
        self.counters.steps_in_spool = self.backlog.num_on_disk
        self.counters.spool_folder = self.backlog.folder

    # The end -------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave undelivered data in the spool, and log it."""
        with self._lock:
            self._has_left = True
            if self._in_flight is not None:
                self._keep(*self._in_flight)
            self.files.leave_in(self.backlog)
            self._count_backlog()
            self.backlog.close()
        self.health.report_waiting_files()
