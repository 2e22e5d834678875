"""Detects a step that holds more data than may wait for the writer."""

from __future__ import annotations

import logging
from typing import Final

from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder

__all__ = ["StepSize"]

logger = logging.getLogger("stepwatch")

_CHECKED_AGAIN: Final = 1.1
"""Growth of the number of tensors after which their bytes are summed again, which is slow."""


class StepSize:
    """Detects a step that holds too much data, such as one whose optimizer never steps."""

    def __init__(self, recorder: Recorder, collector: Collector, max_bytes: float) -> None:
        self._recorder = recorder
        self._collector = collector
        self._max_bytes = max_bytes
        self._num_checked = 0
        self._has_warned = False

    def begin_step(self) -> None:
        """Note that a step begins."""
        self._num_checked = 0

    def is_full(self) -> bool:
        """Return whether the open step holds as much as may wait for the writer; log it."""
        record = self._recorder.record
        if record is None or record.num_tensors <= self._num_checked * _CHECKED_AGAIN:
            return False
        self._num_checked = record.num_tensors
        if record.nbytes < self._max_bytes:
            return False
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "step %d ended before all optimizers stepped; its %d tensors fill "
                "queue_bytes=%d. Save less, or raise queue_bytes.",
                record.step,
                record.num_tensors,
                int(self._max_bytes),
            )
        return True

    def end_if_full(self) -> bool:
        """If the open step is full, end it and save nothing until the next; return that."""
        if not self.is_full():
            return False
        self._recorder.end_step()
        self._collector.clear()
        return True
