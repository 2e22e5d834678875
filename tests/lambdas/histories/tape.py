"""Choices read from a list of bytes, so that a shorter or smaller list is a calmer history."""

from __future__ import annotations


class Tape:
    """Answers questions from its bytes; with 0 once they are used up.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        return self._at >= len(self._data)

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        if self.is_used_up or count <= 1:
            return 0
        self._at += 1
        return self._data[self._at - 1] % count

    def once_in(self, count: int) -> bool:
        """Answer True about once in so many times."""
        return self.below(count) == count - 1
