"""Which steps may be fed, told from the files seen so far; pure, without any storage.

Each worker numbers its index files 1, 2, 3, ... in step order. So once the files 1 to n of a worker
have been seen, it is known everything that it wrote up to the step of file n, even if it wrote
nothing at some of the steps. A step may be fed once that holds for every worker; what is fed before
that could turn out to lack a file. Files of the original client carry no number; there a listing
tells the same, because each worker of it writes in step order too.

A worker that does not go on while others do is given up after some time (`Patience`): steps are fed
without it until it writes again. What comes of it for those steps is late, and judged by a replay
at the end.

What is kept is bounded: when more files wait than `MAX_PENDING`, those of the highest steps are
treated as never seen, and a listing finds them again when there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from rule_runtime.engine.run_progress import Progress, Waiting
from rule_runtime.engine.worker_track import WorkerTrack

__all__ = ["MAX_PENDING", "Patience", "ProgressTracker", "Sighting", "WorkerTrack"]

MAX_PENDING: Final = 1000
"""Files that may wait to be fed, all workers together."""

_NAMES_TOLD: Final = 3
_LONGEST_WAIT: Final = 6
"""After so many times the wait a step is fed without a worker, however few others wait."""


@dataclass(frozen=True)
class Patience:
    """How long a step waits for a worker that does not go on.

    Attributes:
        seconds: The wait while enough steps wait, in seconds; six times that however few do.
        steps: How many later steps are enough.
    """

    seconds: float = 600.0
    steps: int = 20


class Sighting(Enum):
    """What a file means for the run."""

    NEW = "new"
    DUPLICATE = "duplicate"
    LATE = "late"


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
        self.unseen_given_up = progress.unseen_given_up
        self.waiting = progress.waiting
        self.scan = progress.scan
        self.finishing = progress.finishing
        self.replaying = progress.replaying

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
        track = self._track(worker)
        if track.has_seen(sequence):
            return Sighting.DUPLICATE
        track.add(sequence, skipped)
        track.given_up = False
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
        """True if all workers that are waited for are known by name."""
        if self.unseen_given_up:
            return True
        return self.num_workers is not None and len(self.workers) >= self.num_workers

    @property
    def has_forgotten(self) -> bool:
        """True if files were seen for which there was no room."""
        return any(track.forgotten for track in self.workers.values())

    @property
    def room(self) -> int:
        """How many more files may wait."""
        return MAX_PENDING - sum(len(track.pending) for track in self.workers.values())

    def ready_steps(self) -> list[int]:
        """Return the steps that every worker which is waited for has passed, in order."""
        if not self.names_known:
            return []
        passed = [track.passed_step for track in self.workers.values() if not track.given_up]
        steps = self.pending_steps()
        return [step for step in steps if step <= min(passed)] if passed else steps

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

    def note_waiting(self, now: float) -> None:
        """Note which step is the first to wait, and since when.

        Args:
            now: Seconds since the epoch.
        """
        first = min(self.pending_steps(), default=None)
        if first is None:
            self.waiting = None
        elif self.waiting is None or first > self.waiting.step:
            self.waiting = Waiting(first, now)
        elif first < self.waiting.step:
            self.waiting = replace(self.waiting, step=first, looked=False)

    def is_overdue(self, now: float, patience: Patience) -> bool:
        """Return whether the first step that waits has waited long enough.

        Args:
            now: Seconds since the epoch.
            patience: How long it is to wait.
        """
        if self.waiting is None:
            return False
        waited = now - self.waiting.since
        others = self.has_forgotten or len(self.pending_steps()) > patience.steps
        return waited >= patience.seconds * (1 if others else _LONGEST_WAIT)

    def note_look(self) -> None:
        """Note that a listing looks for what the first step waits for, its time being over."""
        if self.waiting is not None:
            self.waiting = replace(self.waiting, looked=True)

    def give_up(self) -> tuple[int, str]:
        """Wait no longer for those that the first step waits for; return how many and who."""
        if self.waiting is None:
            return 0, ""
        step = self.waiting.step
        behind = sorted(
            name
            for name, track in self.workers.items()
            if track.passed_step < step and not track.given_up
        )
        for name in behind:
            self.workers[name].give_up(step)
        if self.names_known:
            return len(behind), _told(behind, 0)
        self.unseen_given_up = True
        if self.num_workers is None:
            return len(behind), "workers whose number is unknown"
        unseen = self.num_workers - len(self.workers)
        return len(behind) + unseen, _told(behind, unseen)

    def num_seen(self, worker: str) -> int:
        """Return how many files of a worker were seen.

        Args:
            worker: The worker.
        """
        track = self.workers.get(worker, WorkerTrack())
        numbered = sum(last - first + 1 for first, last in track.seen) - track.lost
        unreadable = sum(name == worker for _, name in self.unreadable)
        return numbered + track.unsequenced + unreadable

    def count_late(self, listed: Mapping[str, int]) -> None:
        """Compare the files without a number that exist with those seen; the difference came late.

        Args:
            listed: Number of files of each worker that a full listing shows.
        """
        for name, count in listed.items():
            track = self.workers.get(name, WorkerTrack())
            missing = count - self.num_seen(name)
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
            unseen_given_up=self.unseen_given_up,
            waiting=self.waiting,
            scan=self.scan,
            finishing=self.finishing,
            replaying=self.replaying,
        )

    def _track(self, worker: str) -> WorkerTrack:
        return self.workers.get(worker) or self.workers.setdefault(worker, WorkerTrack())

    def _note_unsequenced(self, worker: str, step: int) -> Sighting:
        # A file of a step that was fed is a duplicate or late; the count at the end tells which.
        if step <= self.fed_step:
            return Sighting.DUPLICATE
        track = self._track(worker)
        if step in track.pending:
            return Sighting.DUPLICATE
        track.pending[step] = 0
        track.unsequenced += 1
        track.given_up = False
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


def _told(names: Sequence[str], unseen: int) -> str:
    """Return a text with the first names and how many there are; there may be hundreds."""
    message = list(names[:_NAMES_TOLD])
    if len(names) > len(message):
        message.append(f"{len(names) - len(message)} more workers")
    if unseen:
        message.append(f"{unseen} workers without any file")
    return ", ".join(message)
