"""Saves values after the end of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hook_layer.core.recorder import Recorder
from hook_layer.core.session import Session
from hook_layer.core.tensor_capture import PlannedTensors
from hook_layer.process.process_end import at_process_end

__all__ = ["LateValues"]

logger = logging.getLogger("stepwatch")


class LateValues:
    """Captures values after the end of a run, and adds them to the run as one more step.

    `close` or the end of the process writes them. Until then the run keeps its end marker.
    """

    def __init__(self, recorder: Recorder, session: Session) -> None:
        self._recorder = recorder
        self._session = session
        self._cancel: Callable[[], None] = lambda: None

    def capture(self, tensors: PlannedTensors, wall_time: float | None) -> None:
        """Capture values; the newest value of a name wins."""
        if not self._recorder.pending_names:
            self._cancel()
            self._cancel = at_process_end(self.close)  # also if the hook was deleted by then
        self._recorder.capture_own(tensors, wall_time)

    def close(self) -> None:
        """Write the values."""
        self._cancel()
        if self._session.state.is_forked:
            return
        with self._recorder.lock:
            record = self._recorder.take_pending()
        if record is None:
            return
        try:
            self._session.add_step(record)
        except Exception:
            logger.exception("values of %s are not stored", ", ".join(record.tensors))
