"""Time budget of a job, or of one of its rules, in a function call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["TimeBudget"]


@dataclass(frozen=True)
class TimeBudget:
    """A part of the time of one call.

    Attributes:
        remaining_ms: Returns the function's remaining time, milliseconds.
        end_ms: Remaining time at which the turn ends, milliseconds.
    """

    remaining_ms: Callable[[], float]
    end_ms: float

    def may_go_on(self) -> bool:
        """Return whether time is left."""
        return self.remaining_ms() >= self.end_ms

    def at_most(self, seconds: float) -> TimeBudget:
        """Return a turn that ends after some seconds at the latest."""
        return replace(self, end_ms=max(self.end_ms, self.remaining_ms() - 1000 * seconds))

    def share(self, num: int) -> TimeBudget:
        """Return the next of several equal turns that share the rest of this one.

        Args:
            num: Number of remaining turns.
        """
        if num == 1:
            return self
        left_ms = self.remaining_ms()
        if left_ms <= self.end_ms:
            return self
        return replace(self, end_ms=left_ms - (left_ms - self.end_ms) / num)
