"""What the writer's threads do: they store steps and small files, and account for what failed.

**Nothing is lost while the store is away.** A step that cannot be stored goes to the spool, a
folder on local disk, under the number that it has; those behind it go there too, and all are
delivered in their order once the store takes them (`hook_layer.circuit_breaker` says when it is
tried). Only what finds no room there is lost.

**No gap goes unnoticed.** Every step that is handed over has a number, also one that is lost. An
index file says how many numbers right before its own will never come, so a reader does not wait for
them; what is lost behind the last index file shows in the end marker.

**No file is in doubt for long.** An index file whose storing failed may be there all the same (the
answer was lost, not the request). It waits with its step and is stored again, before any other.

**No step holds up the others for ever.** One that is refused again and again while the next one is
taken is set aside: it stays in the spool, and counts as one that never comes.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from hook_layer.backlog import Backlog, WaitingStep
from hook_layer.capture import StepRecord
from hook_layer.circuit_breaker import CircuitBreaker
from hook_layer.counters import WriterCounters
from hook_layer.format.index import parse_index
from hook_layer.format.paths import event_key, index_key
from hook_layer.owed_files import Content, OwedFiles
from hook_layer.spool_folder import SpoolTarget, StepFiles
from hook_layer.step_files import EncodedStep, RunIdentity, encode_step
from hook_layer.storage.base import Buffers, Store, StoreRefusedError

__all__ = ["StepDelivery", "index_with"]

logger = logging.getLogger("stepwatch")

_ATTEMPTS_IF_REFUSED: Final = 3
_ATTEMPTS_IF_AWAY: Final = 10
"""Failures of one step after which it is seen whether the store takes the next one."""


class _InFlight(NamedTuple):
    """A step that is being stored out of memory."""

    encoded: EncodedStep
    number: int


class StepDelivery:
    """Stores one worker's steps and small files in the order of their numbers; never raises.

    One thread stores: it calls `write`, `advance`, `put_file` and `housekeep`. Meanwhile another
    one may call `keep`, `owe` and `defer`, which do not touch the store.

    Args:
        store: Where to.
        identity: Run and worker.
        spool_bytes: How much may wait on local disk.
        spool_dir: Folder for that; None: the system's one for temporary files.
        sequence: Number of this worker's next index file.
        clock: Returns a time that only grows, seconds.

    Attributes:
        counters: What became of the steps.
        busy_since: When the store was called that has not answered yet; None: it has.
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
        self.busy_since: float | None = None
        self._target = store
        self._identity = identity
        self._clock = clock
        self._last_stored = sequence - 1
        self._in_flight: _InFlight | None = None
        self._has_left = False
        self._is_refused = False
        self._has_lost = False
        self._breaker = CircuitBreaker(clock=clock)
        target = SpoolTarget(store.uri, identity.run_id, identity.worker)
        self._backlog = Backlog(target, max_bytes=spool_bytes, parent=spool_dir)
        self._owed = OwedFiles(store, self.counters, clock=clock)
        self._deferred: list[tuple[str, Callable[[], object]]] = []
        self._lock = threading.RLock()

    # What waits, and how long --------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        """Whether steps wait to be stored."""
        return len(self._backlog) > 0

    @property
    def is_away(self) -> bool:
        """Whether the store failed again and again."""
        return self._breaker.has_opened

    @property
    def is_hopeless(self) -> bool:
        """Whether what waits was refused: nothing but a change by somebody will help."""
        return self._is_refused if self.has_backlog else self._owed.are_hopeless

    @property
    def is_done(self) -> bool:
        """Whether nothing waits."""
        return not (self.has_backlog or self._owed or self._owed.last or self._deferred)

    def has_room(self, num_bytes: int) -> bool:
        """Tell whether a step of about this size fits into the spool."""
        return self._backlog.has_room(num_bytes)

    def wait_s(self) -> float:
        """Return the time until `advance` is worth calling, seconds; 0: now."""
        return self._breaker.wait_s() if self.has_backlog else self._owed.wait_s()

    # Steps ---------------------------------------------------------------------------------------

    def write(self, record: StepRecord, number: int) -> None:
        """Store a step behind those that wait, or let it wait with them.

        Args:
            record: What was captured of it.
            number: Its number.
        """
        while self.has_backlog and self._breaker.allows() and self._deliver_first():
            pass
        encoded = self._encoded(record)
        if encoded is None:
            return
        if self.has_backlog or not self._breaker.allows():
            self._keep(encoded, number)
            return
        self._in_flight = _InFlight(encoded, number)
        try:
            self._store(encoded, number)
        finally:
            self._in_flight = None

    def keep(self, record: StepRecord, number: int) -> None:
        """Let a step wait in the spool.

        Args:
            record: What was captured of it.
            number: Its number.
        """
        encoded = self._encoded(record)
        if encoded is not None:
            self._keep(encoded, number)

    def advance(self) -> None:
        """Try the first of what waits: a step, or else the small files."""
        if self.has_backlog:
            self._deliver_first()
            return
        deferred, self._deferred = self._deferred, []
        for what, action in deferred:
            self.housekeep(what, action)
        self._owed.pay()
        if not self._owed or self._owed.last is None:
            self._owed.pay_last()
        elif self._owed.are_hopeless or self._is_paid_in_part():
            self._owed.pay_last()
"""
