"""What is known of one worker's files: which were seen, and how far nothing can be missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import Final

from rule_runtime.engine.run_progress import WorkerProgress

__all__ = ["MAX_RANGES", "WorkerTrack"]

MAX_RANGES: Final = 1000
"""Ranges of sequences of a worker that are kept."""


class WorkerTrack:
    """What is known of one worker's files; the mutable twin of `WorkerProgress`.

    Args:
        progress: What was known when the run was last looked at.
    """

    def __init__(self, progress: WorkerProgress | None = None) -> None:
        progress = progress or WorkerProgress()
        self.seen: list[tuple[int, int]] = list(progress.seen)
        self.passed_step = progress.passed_step
        self.pending: dict[int, int] = dict(progress.pending)
        self.listed = progress.listed
        self.forgotten = progress.forgotten
        self.unsequenced = progress.unsequenced
        self.lost = progress.lost
        self.excused = progress.excused
        self.given_up = progress.given_up

    @property
    def complete_to(self) -> int:
        """Highest sequence before which none is missing."""
        return self.seen[0][1] if self.seen and self.seen[0][0] == 1 else 0

    @property
    def contiguous(self) -> int:
        """Highest sequence before which none is waited for."""
        at = bisect_right(self.seen, self.excused + 1, key=lambda pair: pair[0]) - 1
        return max(self.excused, self.seen[at][1]) if at >= 0 else self.excused

    @property
    def highest(self) -> int:
        """Highest sequence seen."""
        return self.seen[-1][1] if self.seen else 0

    @property
    def has_hole(self) -> bool:
        """True if a sequence below the highest one has not been seen, and is waited for."""
        return self.contiguous < self.highest

    @property
    def has_new_hole(self) -> bool:
        """True if there is a hole that no listing has looked for yet."""
        return self.has_hole and self.seen[-1][0] > self.listed

    def has_seen(self, sequence: int) -> bool:
        """Return whether a file was seen.

        Args:
            sequence: Its number.
        """
        if sequence > self.highest:
            return False
        at = bisect_left(self.seen, (sequence + 1,)) - 1
        return at >= 0 and self.seen[at][0] <= sequence <= self.seen[at][1]

    def add(self, sequence: int, skipped: int = 0) -> None:
        """Note a file as seen.

        Args:
            sequence: Its number.
            skipped: How many numbers right before it never come, as it says.
        """
        first, last = sequence - skipped, sequence
        if self.seen and first == self.highest + 1:  # the usual case: the next one
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

    def remove(self, sequence: int) -> None:
        """Take a file back as never seen.

        Args:
            sequence: Its number.
        """
        at = bisect_left(self.seen, (sequence + 1,)) - 1
        if at < 0 or not self.seen[at][0] <= sequence <= self.seen[at][1]:
            return
        self.excused = min(self.excused, sequence - 1)
        first, last = self.seen[at]
        parts = [(first, sequence - 1), (sequence + 1, last)]
        self.seen[at : at + 1] = [part for part in parts if part[0] <= part[1]]

    def give_up(self, step: int) -> None:
        """Let no hole hold anything up, nor this worker until it writes again.

        Args:
            step: The step that waited; a worker whose files go beyond it only had holes.
        """
        self.excused = max(self.excused, self.highest)
        self.settle()
        self.given_up = self.passed_step < step

    def settle(self, unreadable: Collection[int] = ()) -> None:
        """Work out up to which step all files of this worker have been seen.

        Args:
            unreadable: Steps of its files that exist and cannot be parsed.
        """
        if unreadable:
            self._bridge(unreadable)
        contiguous = self.contiguous
        steps = [step for step, sequence in self.pending.items() if 0 < sequence <= contiguous]
        self.passed_step = max([self.passed_step, *steps])

    def _bridge(self, unreadable: Collection[int]) -> None:
        """Close holes that are explained by files which exist and cannot be parsed."""
        steps = {sequence: step for step, sequence in self.pending.items()}
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
            for sequence in range(before + 1, after):
                self.add(sequence)

    def to_progress(self) -> WorkerProgress:
        """Return the immutable twin."""
        self._forget_oldest_holes()
        return WorkerProgress(
            seen=tuple(self.seen[:MAX_RANGES]),
            passed_step=self.passed_step,
            pending=tuple(sorted(self.pending.items())),
            listed=self.listed,
            forgotten=self.forgotten,
            unsequenced=self.unsequenced,
            lost=self.lost,
            excused=self.excused,
            given_up=self.given_up,
        )

    def _forget_oldest_holes(self) -> None:
        """Of too many holes, take the first, given up long ago, for files that never come."""
        surplus = len(self.seen) - MAX_RANGES
        if surplus <= 0 or self.seen[surplus][0] > self.excused:
            return
        merged = self.seen[: surplus + 1]
        first, last = merged[0][0], merged[-1][1]
        self.lost += last - first + 1 - sum(high - low + 1 for low, high in merged)
        self.seen[: surplus + 1] = [(first, last)]
