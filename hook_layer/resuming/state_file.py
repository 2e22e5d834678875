"""Reads and writes the state file in the checkpoint directory, and its copy in S3.

SageMaker copies the directory to S3 and back. Elsewhere the hook copies only the state file; the
training script must copy the rest of the directory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from hook_layer.configuration.job import CheckpointConfig
from hook_layer.delivery.circuit_breaker import CircuitBreaker
from hook_layer.process.time_limit import within
from hook_layer.resuming.checkpoint_state import (
    MAX_STATE_FILE_BYTES,
    STATE_FILE,
    CheckpointStateError,
    SavedState,
    encode_states,
    parse_states,
)
from hook_layer.storage.base import ObjectNotFoundError, StorageError, Store, open_store
from hook_layer.storage.local import LocalStore

__all__ = ["Housekeep", "StateFile"]

logger = logging.getLogger("stepwatch")

Housekeep = Callable[[str, Callable[[], object]], None]
"""Runs a function in the background."""

_FETCH_TIMEOUT_S: Final = 20.0


class StateFile:
    """The state file of a checkpoint directory; failed writes are retried."""

    def __init__(
        self, config: CheckpointConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = LocalStore(config.local_path)
        self._here = _OwedFile(lambda: self._folder, clock)
        uri = config.s3_uri
        self._there = None if uri is None else _OwedFile(lambda: open_store(uri), clock)
        self._housekeep: Housekeep | None = None

    @property
    def name(self) -> str:
        """The file's URI, for messages."""
        return f"{self._folder.uri}{STATE_FILE}"

    @property
    def mtime_ns(self) -> int:
        """Time when the file was written, nanoseconds since 1970; 0 without a file."""
        try:
            return (self._folder.path / STATE_FILE).stat().st_mtime_ns
        except OSError:
            return 0

    def read(self) -> list[SavedState]:
        """Return the states in the file or its copy, whichever is newer; none if both fail.

        Never raises for invalid content, and limits the time that it waits for S3.
        """
        here = self._parsed(self._here)
        there = self._there
        if there is None:
            return here
        try:
            copied = within(_FETCH_TIMEOUT_S, lambda: self._parsed(there))
        except Exception as error:  # noqa: BLE001 - training starts after any error
            logger.warning("the copy of this run's state cannot be read: %s", error)
            return here
        return max(here, copied, key=lambda states: [(s.training_run, s.step) for s in states[-1:]])

    def write(self, states: Sequence[SavedState]) -> None:
        """Write the file, and its copy in the background; log errors once."""
        data = encode_states(states)
        self._here.data = data
        self._here.pay()
        if self._there is not None:
            self._there.data = data
            self._copy()

    def write_again(self, *, is_last: bool = False) -> None:
        """Retry failed writes.

        Args:
            is_last: Whether to retry even after several recent failures.
        """
        for file in (self._here, self._there) if is_last else ():
            if file is not None:
                file.breaker.succeeded()
        self._here.pay()
        self._copy()

    def copy_by(self, housekeep: Housekeep) -> None:
        """Set the function that runs actions in the background; before that, nothing is copied."""
        self._housekeep = housekeep
        self._copy()

    def _parsed(self, file: _OwedFile) -> list[SavedState]:
        name = self.name
        try:
            store = file.store()
            name = f"{store.uri}{STATE_FILE}"
            return parse_states(store.get(STATE_FILE, 0, MAX_STATE_FILE_BYTES + 1), file=name)
        except ObjectNotFoundError:
            return []
        except (CheckpointStateError, StorageError, ValueError, ImportError) as error:
            logger.warning("the saved state of this run cannot be used (%s): %s", name, error)
            return []

    def _copy(self) -> None:
        file = self._there
        is_owed = file is not None and file.data is not None and file.breaker.allows()
        if file is not None and is_owed and self._housekeep is not None:
            self._housekeep(f"copying {STATE_FILE}", file.pay)


class _OwedFile:
    """The state file in one store; writing is retried until it succeeds.

    Attributes:
        data: Content to store; None: nothing.
        breaker: Decides when to retry.
    """

    def __init__(self, store: Callable[[], Store], clock: Callable[[], float]) -> None:
        self._open = store
        self._store: Store | None = None
        self.data: bytes | None = None
        self.breaker = CircuitBreaker(clock=clock)
        self._has_complained = False

    def store(self) -> Store:
        """Return the store, opened at the first call."""
        if self._store is None:
            self._store = self._open()
        return self._store

    def pay(self) -> None:
        """Store the content, unless that failed several times recently; log errors once."""
        data = self.data
        if data is None or not self.breaker.allows():
            return
        try:
            self.store().put(STATE_FILE, data)
        except Exception as error:  # noqa: BLE001 - it is retried, and training continues
            self.breaker.failed()
            if not self._has_complained:
                self._has_complained = True
                logger.warning("the state of this run cannot be saved: %s", error)
        else:
            self.breaker.succeeded()
            if self.data is data:
                self.data = None
