"""Polls for `stop.json` beside the tensors, which requests a stop of this run.

A background thread polls for the file; the training loop only reads a flag.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, StopFile, parse_stop_file
from hook_layer.format.paths import STOP_FILE
from hook_layer.run.session_log import is_watched
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = ["DEFAULT_STOP_POLL_S", "StopSignal"]

logger = logging.getLogger("stepwatch")

DEFAULT_STOP_POLL_S: Final = 5.0


class StopSignal:
    """Polls for a `stop.json` that applies to this run.

    A file with another RunId is ignored. A file without a RunId applies unless it existed before
    the run began.

    Args:
        store: The trial's root.
        run_id: Id of this run.
        poll_s: Polling interval, seconds.

    Attributes:
        requested: The request, once seen.
        num_errors: Number of failed polls.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        poll_s: float = DEFAULT_STOP_POLL_S,
    ) -> None:
        self.num_errors = 0
        self._store = store
        self._run_id = run_id
        self._poll_s = poll_s
        self._closed = threading.Event()
        self.requested: StopFile | None = None
        self._ignored: bytes | None = None
        self._first_look = True
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start polling in a thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name="stepwatch-stop", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._thread = None

    def close(self) -> None:
        """End the thread at its next poll, without waiting for it."""
        self._closed.set()

    def check(self) -> StopFile | None:  # noqa: PLR0911 - one return a case
        """Look once; errors are counted and logged once."""
        if self.requested is not None:
            return self.requested
        first_check, self._first_look = self._first_look, False
        try:
            content = self._store.get(STOP_FILE, 0, MAX_JOB_FILE_BYTES + 1)
            if content == self._ignored:
                return None
            request = parse_stop_file(content, file=f"{self._store.uri}{STOP_FILE}")
        except ObjectNotFoundError:
            return None
        except JobFileError as error:
            self._ignored = content
            logger.warning("a stop request is not valid: %s", error)
            return None
        except Exception as error:  # noqa: BLE001 - nothing may end this thread
            self.num_errors += 1
            if self.num_errors == 1:
                logger.warning("looking for a stop request failed: %s", error)
            return None
        if not self._means_us(request, first_check=first_check):
            self._ignored = content
            return None
        level = logging.INFO if is_watched() else logging.WARNING
        logger.log(level, "a stop was requested: %s", request.reason)
        self.requested = request
        return request

    def _means_us(self, request: StopFile, *, first_check: bool) -> bool:
        if request.run_id is not None or not first_check:
            return request.run_id in (None, self._run_id)
        logger.warning(
            "%s%s names no run and existed before this run, so it is ignored. To stop this "
            "run, write it with RunId %s.",
            self._store.uri,
            STOP_FILE,
            self._run_id,
        )
        return False

    def _poll(self) -> None:
        while self.check() is None and not self._closed.is_set():
            if self._closed.wait(self._poll_s):
                return
