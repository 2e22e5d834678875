"""A series of bounded length: it keeps every second, fourth, ... entry of a long series."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["EvenSeries"]

_T = TypeVar("_T")


class EvenSeries(Generic[_T]):
    """Entries by step, evenly distributed over all offered steps, in any order."""

    def __init__(self) -> None:
        self.entries: dict[int, _T] = {}
        self._each = 1
        self._num_offered = 0

    def offer(self, step: int, entry: _T, limit: int) -> None:
        """Keep every second, fourth, ... offered entry; at most `limit` entries, at least 2."""
        is_wanted = self._num_offered % self._each == 0
        self._num_offered += 1
        if not is_wanted:
            return
        self.entries[step] = entry
        if len(self.entries) > max(limit, 2):
            self.entries = {kept: self.entries[kept] for kept in sorted(self.entries)[::2]}
            self._each *= 2
