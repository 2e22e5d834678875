"""The time that a job, or one of its rules, has in a call of the function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Turn"]


@dataclass(frozen=True)
class Turn:
    """A part of the time of one call.

    Attributes:
        remaining_ms: Milliseconds that are left to the function, as it continues.
        end_ms: What must be left of them when the turn is over.
    """

    remaining_ms: Callable[[], float]
    end_ms: float

    def may_go_on(self) -> bool:
        """Return whether there is time for more."""
        return self.remaining_ms() >= self.end_ms

    def share(self, num: int) -> Turn:
        """Return the turn of the next of some who share what is left of this one.

        Args:
            num: How many have not had their turn yet.
        """
        left_ms = self.remaining_ms()
        if left_ms <= self.end_ms:
            return self
        return replace(self, end_ms=left_ms - (left_ms - self.end_ms) / num)
