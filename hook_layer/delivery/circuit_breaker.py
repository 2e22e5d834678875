"""A circuit breaker: pauses attempts after several consecutive failures, for longer each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["CircuitBreaker"]

_MAX_FAILURES_IN_A_ROW: Final = 3
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class CircuitBreaker:
    """Decides whether to call a service that may be failing.

    It opens after `max_failures` consecutive failures. After a pause it allows one more attempt
    (half-open). If that fails, the next pause is twice as long; a success closes the breaker.

    Args:
        max_failures: Consecutive failures that open it.
        first_pause_s: The first pause, seconds.
        longest_pause_s: Upper limit of the growing pauses, seconds.
        clock: Monotonic time, seconds.
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
        """Whether it opened, without a success since."""
        return self._failures_in_a_row >= self._max_failures

    def allows(self) -> bool:
        """Return whether an attempt is allowed now."""
        return self.wait_s() <= 0

    def wait_s(self) -> float:
        """Return the time until the next allowed attempt, seconds; 0: now."""
        return max(self._retry_at - self._clock(), 0.0) if self.has_opened else 0.0

    def failed(self) -> None:
        """Record a failed attempt."""
        self._failures_in_a_row += 1
        if self.has_opened:
            longer = 2 * self._pause_s or self._first_pause_s
            self._pause_s = min(longer, self._longest_pause_s)
            self._retry_at = self._clock() + self._pause_s

    def succeeded(self) -> None:
        """Record a successful attempt."""
        self._failures_in_a_row = 0
        self._pause_s = 0.0
