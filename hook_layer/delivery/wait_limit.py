"""Limits how long training waits for memory."""

from __future__ import annotations

import logging

from hook_layer.delivery.counters import WriterCounters

__all__ = ["Patience"]

logger = logging.getLogger("stepwatch")


class Patience:
    """Remaining time that training may wait for memory.

    Args:
        max_wait_s: Limit of all waits between two steps that leave memory, seconds.
        counters: Counts the waits, and shows when a step left memory.
    """

    def __init__(self, max_wait_s: float, counters: WriterCounters) -> None:
        self._max_wait_s = max_wait_s
        self._counters = counters
        self._waited_s = 0.0
        self._gone = 0
        self._has_complained = False

    def left_s(self) -> float:
        """Return the maximum length of the next wait, seconds."""
        self._forget_if_any_left()
        return self._max_wait_s - self._waited_s

    def waited(self, wait_s: float) -> None:
        """Record a wait of `wait_s` seconds."""
        self._counters.wait_s += wait_s
        if not self._forget_if_any_left():
            self._waited_s += wait_s
        if self.left_s() <= 0 and not self._has_complained:
            self._has_complained = True
            logger.error(
                "training waited %.0f s and nothing was stored. Steps are dropped, without "
                "waiting, until storage works again.",
                self._waited_s,
            )

    def _forget_if_any_left(self) -> bool:
        """Reset the waits if a step left memory since the last call; return whether one did."""
        gone = self._counters.steps_written + self._counters.steps_spooled
        if gone == self._gone:
            return False
        self._gone, self._waited_s = gone, 0.0
        return True
