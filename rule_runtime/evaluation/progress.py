"""Which steps may be fed, told from the files seen so far; pure, without any storage.

Each worker numbers its index files 1, 2, 3, ... in step order. So once the files 1 to n of a worker
have been seen, it is known everything that it wrote up to the step of file n, even if it wrote
nothing at some of the steps. A step may be fed once that holds for every worker; what is fed before
that could turn out to lack a file. Files of the original client carry no number; there a listing
tells the same, because each worker of it writes in step order too.

What is kept is bounded: when more files wait than `MAX_PENDING`, those of the highest steps are
treated as never seen, and a listing finds them again when there is room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from rule_runtime.evaluation.state import Progress, WorkerProgress

__all__ = ["MAX_PENDING", "ProgressTracker", "Sighting", "WorkerTrack"]

MAX_PENDING: Final = 1000
"""Files that may wait to be fed, all workers together; also ranges of sequences of a worker."""


class Sighting(Enum):
    """What a file means for the run."""

    NEW = "new"
    DUPLICATE = "duplicate"
    LATE = "late"


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

    @property
    def contiguous(self) -> int:
        """Highest sequence before which none is missing."""
        return self.seen[0][1] if self.seen and self.seen[0][0] == 1 else 0

    @property
    def highest(self) -> int:
        """Highest sequence seen."""
        return self.seen[-1][1] if self.seen else 0

    @property
    def has_hole(self) -> bool:
        """True if a sequence below the highest one has not been seen."""
        return self.contiguous < self.highest

    @property
    def has_new_hole(self) -> bool:
        """True if there is a hole that no listing has looked for yet."""
        return self.has_hole and self.seen[-1][0] > self.listed

    def has_seen(self, sequence: int) -> bool:
        """Tell whether a file was seen.

        Args:
            sequence: Its number.
        """
        at = bisect_left(self.seen, (sequence + 1,)) - 1
        return at >= 0 and self.seen[at][0] <= sequence <= self.seen[at][1]

    def add(self, sequence: int, skipped: int = 0) -> None:
        """Note a file as seen.

        Args:
            sequence: Its number.
            skipped: How many numbers right before it never come, as it says.
        """
        first, last = sequence - skipped, sequence
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
        first, last = self.seen[at]
        parts = [(first, sequence - 1), (sequence + 1, last)]
        self.seen[at : at + 1] = [part for part in parts if part[0] <= part[1]]

    def settle(self, unreadable: Collection[int] = ()) -> None:
        """Work out up to which step all files of this worker have been seen.

        Args:
            unreadable: Steps of its files that exist and cannot be parsed.
        """
        self._bridge(unreadable)
        contiguous = self.contiguous
        steps = [step for step, sequence in self.pending.items() if 0 < sequence <= contiguous]
        self.passed_step = max([self.passed_step, *steps])

    def _bridge(self, unreadable: Collection[int]) -> None:
        """Close holes that are explained by files which exist and cannot be parsed."""
        steps = {sequence: step for step, sequence in self.pending.items()}
        while unreadable and self.has_hole:
            before = self.contiguous
            after = self.seen[1 if before else 0][0]
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
        return WorkerProgress(
            seen=tuple(self.seen[:MAX_PENDING]),
            passed_step=self.passed_step,
            pending=tuple(sorted(self.pending.items())),
            listed=self.listed,
            forgotten=self.forgotten,
            unsequenced=self.unsequenced,
            lost=self.lost,
        )


class ProgressTracker:
    """What is known of a run's files; the mutable twin of `Progress`.

    Args:
        progress: What was known when the run was last looked at.
    """

    def __init__(self, progress: Progress) -> None:
        self.workers = {name: WorkerTrack(worker) for name, worker in progress.workers.items()}
        self.num_workers = progress.num_workers
        self.fed_step = progress.fed_step
        self.late = progress.late
        self.replayed = progress.replayed
        self.unreadable: set[tuple[int, str]] = set(progress.unreadable)

    def note(self, worker: str, step: int, sequence: int | None, skipped: int = 0) -> Sighting:
        """Note a file of this run.

        Args:
            worker: Who wrote it.
            step: Its global step.
            sequence: Its number, None in files of the original client.
            skipped: How many numbers right before it never come, as it says.
        """
        if sequence is None:
            return self._note_unsequenced(worker, step)
        track = self.workers.setdefault(worker, WorkerTrack())
        if track.has_seen(sequence):
            return Sighting.DUPLICATE
        track.add(sequence, skipped)
        if step <= self.fed_step:
            self.late += 1
            return Sighting.LATE
        track.pending[step] = sequence
        return Sighting.NEW

    def note_unreadable(self, worker: str, step: int) -> Sighting:
        """Note a file that cannot be parsed: its run and number are not known.

        Args:
            worker: Who wrote it, by its name.
            step: Its global step, by its name.
        """
        if (step, worker) in self.unreadable or len(self.unreadable) >= MAX_PENDING:
            return Sighting.DUPLICATE
        self.unreadable.add((step, worker))
        return Sighting.NEW

    def settle(self) -> None:
        """Work out what may be fed, after some files were noted."""
        for name, track in self.workers.items():
            track.settle([step for step, worker in self.unreadable if worker == name])
        self._forget_surplus()

    @property
    def names_known(self) -> bool:
        """True if as many workers were seen as write, and it is known how many write."""
        return self.num_workers is not None and len(self.workers) >= self.num_workers

    @property
    def room(self) -> int:
        """How many more files may wait."""
        return MAX_PENDING - sum(len(track.pending) for track in self.workers.values())

    def ready_steps(self) -> list[int]:
        """Return the steps that every worker has passed, in order."""
        if not self.names_known:
            return []
        frontier = min(track.passed_step for track in self.workers.values())
        return [step for step in self.pending_steps() if step <= frontier]

    def pending_steps(self) -> list[int]:
        """Return the steps that wait to be fed, in order."""
        return sorted({step for track in self.workers.values() for step in track.pending})

    def writers(self, step: int) -> list[str]:
        """Return the workers whose file of a waiting step was seen.

        Args:
            step: The step.
        """
        return sorted(name for name, track in self.workers.items() if step in track.pending)

    def mark_fed(self, step: int) -> None:
        """Note that a step was fed.

        Args:
            step: The step; no earlier one may be fed any more.
        """
        self.fed_step = step
        for track in self.workers.values():
            track.pending.pop(step, None)

    def count_late(self, listed: Mapping[str, int]) -> None:
        """Compare the files without a number that exist with those seen; the difference came late.

        Args:
            listed: Number of files of each worker that a full listing shows.
        """
        for name, count in listed.items():
            track = self.workers.get(name, WorkerTrack())
            unreadable = sum(worker == name for _, worker in self.unreadable)
            missing = count - track.unsequenced - unreadable
            if not track.seen and missing > 0:
                self.late += missing
                track.unsequenced += missing
                self.workers[name] = track

    def to_progress(self) -> Progress:
        """Return the immutable twin."""
        return Progress(
            workers={name: track.to_progress() for name, track in self.workers.items()},
            num_workers=self.num_workers,
            fed_step=self.fed_step,
            late=self.late,
            replayed=self.replayed,
            unreadable=tuple(sorted(self.unreadable)),
        )

    def _note_unsequenced(self, worker: str, step: int) -> Sighting:
        # A file of a step that was fed is a duplicate or late; the count at the end tells which.
        if step <= self.fed_step:
            return Sighting.DUPLICATE
        track = self.workers.setdefault(worker, WorkerTrack())
        if step in track.pending:
            return Sighting.DUPLICATE
        track.pending[step] = 0
        track.unsequenced += 1
        return Sighting.NEW

    def _forget_surplus(self) -> None:
        surplus = -self.room
        if surplus <= 0:
            return
        waiting: Iterable[tuple[int, str]] = sorted(
            ((step, name) for name, track in self.workers.items() for step in track.pending),
            reverse=True,
        )
        for step, name in list(waiting)[:surplus]:
            track = self.workers[name]
            sequence = track.pending.pop(step)
            if sequence:
                track.remove(sequence)
            else:
                track.unsequenced -= 1
            track.passed_step = min(track.passed_step, step - 1)
            track.forgotten = True
