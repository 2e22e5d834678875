"""What the writer's thread does: it stores steps and small files, and accounts for what failed.

**No gap goes unnoticed.** Every step that is handed over takes a sequence number, also one that is
lost. The next index file says how many numbers right before its own will never come, so a reader
does not wait for them; what is lost behind the last index file shows in the end marker.

**No file is in doubt for long.** An index file whose storing failed may be there all the same (the
answer was lost, not the request). It is kept and stored again before the next step, and only after
some attempts given up as one that will never come.

**A store that is away is tried again**, by `hook_layer.circuit_breaker`. Small files that could not
be stored are owed: they are tried again after the next step that is stored, and at the end. Their
failures say nothing about the steps (a role may forbid to delete, or to overwrite), and so have a
circuit breaker of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hook_layer.capture import StepRecord
from hook_layer.circuit_breaker import CircuitBreaker
from hook_layer.format.paths import event_key, index_key
from hook_layer.step_files import EncodedStep, RunIdentity, encode_step
from hook_layer.storage.base import Store

__all__ = ["Content", "StepDelivery", "WriterCounters"]

logger = logging.getLogger("stepwatch")

Content: TypeAlias = "bytes | Callable[[], bytes]"
"""Content of a small file, or what returns it when the file is stored."""

_ATTEMPTS_TO_SETTLE: Final = 3


@dataclass
class WriterCounters:
    """What became of the steps that were handed over.

    Attributes:
        steps_written: Steps whose index file is stored.
        steps_dropped: Steps given up because there was no memory for them (in time).
        steps_undelivered: Steps that could not be stored, nor kept to be stored later.
        steps_spooled: Steps that had to wait on local disk, since the store was away.
        steps_in_spool: Those of them that wait there still.
        tensors_written: Tensors in written steps.
        tensors_left_out: Tensors of written steps, or values of them, that could not be encoded.
        bytes_written: Bytes of event and index files.
        waits: How often training waited for memory.
        wait_s: For how long together, seconds.
        errors: Errors while storing steps.
        first_error: The first of them.
        file_errors: Errors while storing or removing other files.
        files_undelivered: Other files that could not be stored until the end.
        export_errors: Errors of exporters.
    """

    steps_written: int = 0
    steps_dropped: int = 0
    steps_undelivered: int = 0
    steps_spooled: int = 0
    steps_in_spool: int = 0
    tensors_written: int = 0
    tensors_left_out: int = 0
    bytes_written: int = 0
    waits: int = 0
    wait_s: float = 0.0
    errors: int = 0
    first_error: str | None = None
    file_errors: int = 0
    files_undelivered: int = 0
    export_errors: int = 0

    @property
    def steps_lost(self) -> int:
        """Steps that were to be saved and are not stored."""
        return self.steps_dropped + self.steps_undelivered


@dataclass
class _Index:
    """An index file that is being stored; `skipped` is what it says of the numbers before it."""

    key: str
    data: bytes
    skipped: int
    step_bytes: int
    attempts: int = 0


class StepDelivery:
    """Stores one worker's steps and small files in the order of the calls; never raises.

    For one thread at a time.

    Args:
        store: Where to.
        identity: Run and worker.
        sequence: Number of this worker's next index file.
        clock: Returns a time that only grows, seconds.
    """

    def __init__(
        self,
        store: Store,
        identity: RunIdentity,
        *,
        sequence: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = WriterCounters()
        self.last_sequence = sequence - 1
        self._target = store
        self._identity = identity
        self._skipped = 0
        self._doubtful: _Index | None = None
        self._breaker = CircuitBreaker(clock=clock)
        self._owed: dict[str, Content] = {}
        self._owed_breaker = CircuitBreaker(clock=clock)
        self._complained: set[str] = set()

    def skip(self, num_steps: int) -> None:
        """Count the numbers of steps that never come.

        Args:
            num_steps: How many steps were lost before they came here.
        """
        self.last_sequence += num_steps
        self._skipped += num_steps

    def write(self, record: StepRecord) -> None:
        """Store a step, or count it as undelivered."""
        if not self._breaker.allows():
            self._lose()
            return
        try:
            encoded = encode_step(record)
        except Exception as error:  # noqa: BLE001 - no fault of the store
            self._count_error(error)
            self._lose()
            return
        self._count_left_out(encoded)
        if encoded.is_empty:
            return
        number = self.last_sequence + 1
        try:
            self._settle()
            self._store(encoded, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._count_error(error)
            self._lose(is_numbered=self.last_sequence == number)
            self._note_failure(error)
        else:
            self._note_success()

    def put_file(self, key: str, content: Content, *, is_last: bool = False) -> None:
        """Store a small file, now or later.

        Args:
            key: Its key.
            content: Its content.
            is_last: Whether everything that is owed comes first, and it is tried in any case.
        """
        if is_last:
            self.finish()
        self._owed.pop(key, None)
        self._owed[key] = content
        if is_last or self._breaker.allows():
            self._pay([key])

    def housekeep(self, what: str, action: Callable[[], object]) -> None:
        """Do something that may fail without harm.

        Args:
            what: What it does, for the log.
            action: Does it.
        """
        try:
            action()
        except Exception as error:  # noqa: BLE001 - harmless
            self._complain(what, error)

    def finish(self) -> None:
        """Try a last time to store what is owed."""
        if self._doubtful is not None:
            try:
                self._settle()
            except Exception as error:  # noqa: BLE001 - it stays undelivered
                self._count_error(error)
        self._pay(list(self._owed))
        self.counters.files_undelivered = len(self._owed)

    # Steps ---------------------------------------------------------------------------------------

    def _store(self, encoded: EncodedStep, number: int) -> None:
        """Store the event file, then the index file; it takes its number before it is stored."""
        step, worker = encoded.record.step, self._identity.worker
        if encoded.events.nbytes:
            self._target.put(event_key(step, worker), encoded.events)
        data = encoded.index(self._identity, number, self._skipped).encode()
        num_bytes = encoded.events.nbytes + len(data)
        index = _Index(index_key(step, worker), data, self._skipped, num_bytes)
        self.last_sequence = number
        self._skipped = 0
        self._doubtful = index
        self._target.put(index.key, data)
        self._doubtful = None
        self._count_written(index)

    def _settle(self) -> None:
        """Store a doubtful index file again; raise if that fails, until it is given up."""
        index = self._doubtful
        if index is None:
            return
        try:
            self._target.put(index.key, index.data)
        except Exception:
            index.attempts += 1
            if index.attempts < _ATTEMPTS_TO_SETTLE:
                raise
            self._skipped += index.skipped + 1
        else:
            self.counters.steps_undelivered -= 1
            self._count_written(index)
        self._doubtful = None

    def _lose(self, *, is_numbered: bool = False) -> None:
        if not is_numbered:
            self.skip(1)
        self.counters.steps_undelivered += 1

    def _count_written(self, index: _Index) -> None:
        self.counters.steps_written += 1
        self.counters.bytes_written += index.step_bytes

    def _count_left_out(self, encoded: EncodedStep) -> None:
        if encoded.errors and not self.counters.tensors_left_out:
            logger.warning("left out of the saved steps: %s", encoded.errors[0])
        self.counters.tensors_left_out += len(encoded.errors)

    def _count_error(self, error: Exception) -> None:
        self.counters.errors += 1
        if self.counters.first_error is None:
            self.counters.first_error = f"{type(error).__name__}: {error}"
            logger.error("saving to %s failed; training goes on", self._target.uri, exc_info=error)

    def _note_failure(self, error: Exception) -> None:
        was_open = self._breaker.has_opened
        self._breaker.failed()
        if self._breaker.has_opened and not was_open:
            logger.error(
                "saving to %s failed several times in a row; steps are lost until it works again, "
                "it is next tried in %g s: %s",
                self._target.uri,
                self._breaker.pause_s,
                error,
            )

    def _note_success(self) -> None:
        if self._breaker.has_opened:
            logger.warning(
                "saving to %s works again; %d steps were lost so far",
                self._target.uri,
                self.counters.steps_undelivered,
            )
        self._breaker.succeeded()
        if self._owed and self._owed_breaker.allows():
            self._pay(list(self._owed))

    # Small files ---------------------------------------------------------------------------------

    def _pay(self, keys: Sequence[str]) -> None:
        """Store files that are owed; those that fail stay owed."""
        for key in keys:
            content = self._owed[key]
            try:
                self._target.put(key, content if isinstance(content, bytes) else content())
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._owed_breaker.failed()
                self._complain(f"storing {key}", error)
            else:
                self._owed_breaker.succeeded()
                del self._owed[key]

    def _complain(self, what: str, error: Exception) -> None:
        self.counters.file_errors += 1
        if what not in self._complained:
            self._complained.add(what)
            logger.warning("%s in %s failed: %s", what, self._target.uri, error)
