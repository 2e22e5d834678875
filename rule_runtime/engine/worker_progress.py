"""Tracks the index files of one worker, and the last step without a missing file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from rule_runtime.engine.json_codec import JsonRecord

__all__ = ["MAX_RANGES", "WorkerProgress"]

MAX_RANGES: Final = 1000
"""Maximum number of stored ranges per worker."""


@dataclass(kw_only=True)
class WorkerProgress(JsonRecord):
    """The index files of one worker that were seen; they are numbered 1, 2, 3, ... in step order.

    Attributes:
        seen: Ranges of seen numbers, `[(first, last), ...]`; a gap between two is a hole.
        passed_step: Every file that this worker wrote up to this step was seen or given up.
        pending: Numbers of seen files that were not fed yet, by step; 0 for a file without a
            number.
        listed: A listing has already searched for files in holes below this number.
        forgotten: True if seen files did not fit into `pending`; a listing finds them again.
        unsequenced: Number of files without a number seen so far.
        lost: Numbers that later files report as never stored.
        excused: Holes up to this number are no longer awaited.
        given_up: True while steps are fed without this worker; its next file ends that.
    """

    seen: list[tuple[int, int]] = field(default_factory=list)
    passed_step: int = field(default=-1, metadata={"json": "step"})
    pending: dict[int, int] = field(default_factory=dict)
    listed: int = 0
    forgotten: bool = False
    unsequenced: int = 0
    lost: int = 0
    excused: int = 0
    given_up: bool = False

    def copy(self) -> WorkerProgress:
        """Return a copy of bounded size: if there are too many holes, the oldest become lost files.

        Awaited holes are kept; instead, the highest ranges are dropped.
        """
        seen, lost = self.seen, self.lost
        surplus = len(seen) - MAX_RANGES
        if surplus > 0 and seen[surplus][0] <= self.excused:
            merged = seen[: surplus + 1]
            first, last = merged[0][0], merged[-1][1]
            lost += last - first + 1 - sum(high - low + 1 for low, high in merged)
            seen = [(first, last), *seen[surplus + 1 :]]
        return replace(self, seen=seen[:MAX_RANGES], lost=lost, pending=dict(self.pending))

    @property
    def num_seen(self) -> int:
        """Number of files seen."""
        return sum(last - first + 1 for first, last in self.seen) - self.lost + self.unsequenced

    @property
    def complete_to(self) -> int:
        """Highest number up to which every file was seen."""
        return self.seen[0][1] if self.seen and self.seen[0][0] == 1 else 0

    @property
    def contiguous(self) -> int:
        """Highest number up to which no file is awaited."""
        at = bisect_right(self.seen, self.excused + 1, key=lambda pair: pair[0]) - 1
        return max(self.excused, self.seen[at][1]) if at >= 0 else self.excused

    @property
    def highest(self) -> int:
        """Highest number seen."""
        return self.seen[-1][1] if self.seen else 0

    @property
    def has_hole(self) -> bool:
        """True if a file below the highest number is awaited."""
        return self.contiguous < self.highest

    @property
    def has_new_hole(self) -> bool:
        """True if there is a hole that no listing has searched yet."""
        return self.has_hole and self.seen[-1][0] > self.listed

    def has_seen(self, number: int) -> bool:
        """Return whether the file of a number was seen."""
        return self._range_of(number) is not None

    def add(self, number: int, skipped: int = 0) -> None:
        """Record that a file was seen.

        The file reports that the `skipped` numbers right before it were never stored.
        """
        first, last = number - skipped, number
        if self.seen and first == self.highest + 1:  # the usual case: the next number
            self.seen[-1] = (self.seen[-1][0], last)
            self.lost += skipped
            return
        begin = bisect_left(self.seen, first - 1, key=lambda pair: pair[1])
        end = bisect_left(self.seen, last + 2, lo=begin, key=lambda pair: pair[0])
        touched = self.seen[begin:end]
        known = (min(high + 1, last) - max(low, first) for low, high in touched)
        self.lost += skipped - sum(max(count, 0) for count in known)
        ends = [(first, last), *touched]
        self.seen[begin:end] = [(min(low for low, _ in ends), max(high for _, high in ends))]

    def remove(self, number: int) -> None:
        """Forget that a file was seen."""
        at = self._range_of(number)
        if at is not None:
            self.excused = min(self.excused, number - 1)
            first, last = self.seen[at]
            parts = [(first, number - 1), (number + 1, last)]
            self.seen[at : at + 1] = [part for part in parts if part[0] <= part[1]]

    def give_up(self, step: int) -> None:
        """Stop waiting for the files in the holes, and for this worker until it writes again.

        A worker with files after the waiting `step` only has holes.
        """
        self.excused = max(self.excused, self.highest)
        self.settle()
        self.given_up = self.passed_step < step

    def settle(self, unreadable: Collection[int] = ()) -> None:
        """Update `passed_step` after files were recorded.

        `unreadable` holds the steps of this worker's files that exist but cannot be parsed.
        """
        if unreadable:
            self._bridge(unreadable)
        contiguous = self.contiguous
        steps = [step for step, number in self.pending.items() if 0 < number <= contiguous]
        self.passed_step = max([self.passed_step, *steps])

    def _range_of(self, number: int) -> int | None:
        """Return the position of the range that has a number."""
        at = bisect_left(self.seen, (number + 1,)) - 1
        return at if at >= 0 and number <= self.seen[at][1] else None

    def _bridge(self, unreadable: Collection[int]) -> None:
        """Close the holes that unreadable files explain."""
        steps = {number: step for step, number in self.pending.items()}
        while self.has_hole:
            before = self.contiguous
            at = bisect_left(self.seen, before + 1, key=lambda pair: pair[0])
            after = self.seen[at][0]
            if after not in steps:
                return
            low = max(self.passed_step, steps.get(before, -1))
            between = [step for step in unreadable if low < step < steps[after]]
            if len(between) < after - before - 1:
                return
            for number in range(before + 1, after):
                self.add(number)
