"""A circuit breaker: after some failures in a row nothing is tried for a while, ever longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["CircuitBreaker"]

_MAX_FAILURES_IN_A_ROW: Final = 3
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class CircuitBreaker:
    """Returns whether something that may be failing is worth trying.

    It opens after `max_failures` failures in a row. After a pause one more attempt is let through
    (half-open): if that fails, too, the next pause is twice as long; a success closes it.

    Args:
        max_failures: Failures in a row that open it.
        first_pause_s: The first pause, seconds.
        longest_pause_s: Bound of the growing pauses, seconds.
        clock: Returns a time that only grows, seconds.
    """

    def __init__(
        self,
        *,
        max_failures: int = _MAX_FAILURES_IN_A_ROW,
        first_pause_s: float = _FIRST_PAUSE_S,
        longest_pause_s: float = _LONGEST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._clock = clock
        self._failures_in_a_row = 0
        self._pause_s = 0.0
        self._retry_at = 0.0

    @property
    def has_opened(self) -> bool:
        """Whether it opened, and no success has closed it since."""
        return self._failures_in_a_row >= self._max_failures

    def allows(self) -> bool:
        """Return whether to try now."""
        return self.wait_s() <= 0

    def wait_s(self) -> float:
        """Return the time until an attempt is let through, seconds; 0: now."""
        return max(self._retry_at - self._clock(), 0.0) if self.has_opened else 0.0

    def failed(self) -> None:
        """Note that an attempt failed."""
        self._failures_in_a_row += 1
        if self.has_opened:
            longer = 2 * self._pause_s or self._first_pause_s
            self._pause_s = min(longer, self._longest_pause_s)
            self._retry_at = self._clock() + self._pause_s

    def succeeded(self) -> None:
        """Note that an attempt succeeded."""
        self._failures_in_a_row = 0
        self._pause_s = 0.0
