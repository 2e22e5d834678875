"""Ranks of a distributed run that need no other process."""

from __future__ import annotations

from hook_layer.core.workers import Workers
from hook_layer.resuming.checkpoint import RunStart


class FixedWorkers(Workers):
    """One of so many ranks."""

    def __init__(self, rank: int, size: int, start: RunStart | None = None) -> None:
        self._rank, self._size, self._start = rank, size, start

    def rank_and_size(self) -> tuple[int, int]:
        return self._rank, self._size

    def shared_start(self, start: RunStart) -> RunStart:
        return self._start or start
