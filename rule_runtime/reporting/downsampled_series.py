"""A series over steps that stays short: of a long one every second, fourth, ... entry is kept."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["EvenSeries"]

_T = TypeVar("_T")


class EvenSeries(Generic[_T]):
    """Entries by step, evenly over all that were offered, in whichever order."""

    def __init__(self) -> None:
        self.entries: dict[int, _T] = {}
        self._each = 1
        self._num_offered = 0

    def offer(self, step: int, entry: _T, limit: int) -> None:
        """Keep an entry unless it lies between two that are enough; at most `limit`, at least 2."""
        is_wanted = self._num_offered % self._each == 0
        self._num_offered += 1
        if not is_wanted:
            return
        self.entries[step] = entry
        if len(self.entries) > max(limit, 2):
            self.entries = {kept: self.entries[kept] for kept in sorted(self.entries)[::2]}
            self._each *= 2
