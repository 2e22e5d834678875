"""Tracks whether the store accepts steps, when to retry, and what to log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from hook_layer.delivery.circuit_breaker import CircuitBreaker
from hook_layer.delivery.counters import WriterCounters
from hook_layer.delivery.spool_folder import delivery_command
from hook_layer.storage.base import StoreRefusedError

__all__ = ["StoreHealth"]

logger = logging.getLogger("stepwatch")


class StoreHealth:
    """State of the store for steps.

    Attributes:
        is_refused: Whether waiting does not help against the last failure.
        breaker: Decides when to try; open while the store is unavailable.
    """

    def __init__(
        self,
        uri: str,
        counters: WriterCounters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_refused = False
        self._uri = uri
        self._counters = counters
        self.breaker = CircuitBreaker(clock=clock)
        self._has_lost = False
        self._lock = threading.RLock()  # a signal may interrupt who has it

    def call(self, action: Callable[[], object]) -> Exception | None:
        """Call the store, and return the raised error."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - training continues after any error
            return error
        return None

    def failed(self, error: Exception) -> None:
        """Record that a step could not be stored."""
        self.count_error(error)
        was_away = self.breaker.has_opened
        self.is_refused = isinstance(error, StoreRefusedError)
        self.breaker.failed()
        if self.breaker.has_opened and not was_away:
            logger.error(
                "saving to %s failed several times in a row; the next try is in %g s. %s: %s",
                self._uri,
                self.breaker.wait_s(),
                self._fate(),
                error,
            )

    def succeeded(self) -> None:
        """Record that a step was stored."""
        if self.breaker.has_opened:
            logger.warning(
                "saving to %s works again; %d steps wait on local disk, %d steps were lost so far",
                self._uri,
                self._counters.steps_in_spool,
                self._counters.steps_undelivered,
            )
        self.is_refused = self._has_lost = False
        self.breaker.succeeded()

    def lost(self, error: Exception | None = None) -> None:
        """Count a lost step."""
        with self._lock:
            self._counters.steps_undelivered += 1
        if error is not None and not self._has_lost:
            self._has_lost = True
            logger.error(
                "steps for %s are lost, because the local disk has no room: %s", self._uri, error
            )

    def lost_by(self, error: Exception) -> None:
        """Count a step that is lost by an error other than of the store."""
        self.count_error(error)
        self.lost()

    def count_error(self, error: Exception) -> None:
        """Count an error; the first one is logged."""
        with self._lock:
            self._counters.errors += 1
            is_first = self._counters.first_error is None
            if is_first:
                self._counters.first_error = f"{type(error).__name__}: {error}"
        if is_first and isinstance(error, StoreRefusedError):  # its message says what to do
            logger.error(
                "the storage refuses to save; training continues and steps wait: %s", error
            )
        elif is_first:
            logger.error("saving to %s failed; training continues", self._uri, exc_info=error)

    def report_waiting_files(self) -> None:
        """Log which data stays on local disk, and how to deliver it later."""
        folder = self._counters.spool_folder
        if folder is not None:
            logger.error(
                "%d steps and %d other files of %s could not be delivered (%s) and wait in %s; "
                "deliver them later by\n    %s",
                self._counters.steps_in_spool,
                self._counters.files_undelivered,
                self._uri,
                self._counters.first_error,
                folder,
                delivery_command(folder),
            )

    def _fate(self) -> str:
        folder = self._counters.spool_folder
        return "Steps are lost until then" if folder is None else f"Steps wait in {folder}"
