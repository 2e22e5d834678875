"""Tracks the index files of a run, and which steps can be fed to a rule; no storage access.

Each worker numbers its index files 1, 2, 3, ... in step order. Once files 1 to n were seen,
everything up to the step of file n is known, even skipped steps. A step is fed once that holds for
every worker. Files of the original client have no numbers; a listing replaces them, because its
workers also write in step order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rule_runtime.engine.json_codec import JsonRecord
from rule_runtime.engine.unfinished_work import Finishing, Replaying, Scan, Waiting

__all__ = ["MAX_PENDING", "MAX_RANGES", "Patience", "Progress", "WorkerProgress"]

MAX_PENDING: Final = 1000
"""Maximum number of waiting files over all workers; others are found again later."""

MAX_RANGES: Final = 1000
"""Maximum number of stored ranges per worker."""

_NAMES_SHOWN: Final = 3
_LONGEST_WAIT: Final = 6
"""Multiple of the wait after which a step is fed without a worker, even if few steps wait."""


@dataclass(frozen=True)
class Patience:
    """The maximum time that a step waits for a worker without files.

    Attributes:
        seconds: The wait in seconds if enough later steps wait; six times that otherwise.
        steps: Number of later steps that is enough.
    """

    seconds: float = 600.0
    steps: int = 20


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


@dataclass(kw_only=True)
class Progress(JsonRecord):
    """The progress of feeding a run to a rule.

    Attributes:
        workers: Progress of each worker seen, by name.
        num_workers: Number of writing workers, once known.
        fed_step: The last global step that was fed; -1 before the first.
        late: Number of files that came after their step was fed.
        replayed: The value of `late` when the last replay began.
        unreadable: Step and worker of files that cannot be parsed, the first 1,000 of them.
        unseen_given_up: True once workers without files are no longer awaited.
        waiting: The first waiting step; None if there is none.
        scan: The unfinished listing for lost files.
        finishing: The unfinished end of the run.
        replaying: The unfinished replay.
    """

    workers: dict[str, WorkerProgress] = field(default_factory=dict)
    num_workers: int | None = None
    fed_step: int = -1
    late: int = 0
    replayed: int = 0
    unreadable: set[tuple[int, str]] = field(default_factory=set)
    unseen_given_up: bool = False
    waiting: Waiting | None = None
    scan: Scan | None = None
    finishing: Finishing | None = None
    replaying: Replaying | None = None

    def copy(self) -> Progress:
        """Return a copy of bounded size."""
        workers = {name: worker.copy() for name, worker in self.workers.items()}
        return replace(self, workers=workers, unreadable=set(self.unreadable))

    def note(self, worker: str, step: int, number: int | None, skipped: int = 0) -> bool:
        """Record a file of this run; return True if it was unknown.

        `number` is None for files of the original client. The file reports that the `skipped`
        numbers right before it were never stored.
        """
        progress = self.workers.get(worker, WorkerProgress())
        if number is None:
            # A file of a fed step is known or late; the count at the end decides.
            if step <= self.fed_step or step in progress.pending:
                return False
            progress.unsequenced += 1
        elif progress.has_seen(number):
            return False
        else:
            progress.add(number, skipped)
        self.workers[worker] = progress
        progress.given_up = False
        if step <= self.fed_step:
            self.late += 1
        else:
            progress.pending[step] = number or 0
        return True

    def note_unreadable(self, worker: str, step: int) -> bool:
        """Record a file that cannot be parsed, so its run is unknown; return True if it is new."""
        is_new = (step, worker) not in self.unreadable and len(self.unreadable) < MAX_PENDING
        if is_new:
            self.unreadable.add((step, worker))
        return is_new

    def settle(self) -> None:
        """Determine which steps can be fed, after files were recorded."""
        for name, worker in self.workers.items():
            worker.settle([step for step, writer in self.unreadable if writer == name])

    def note_listed(self, files: Iterable[tuple[int, str]]) -> None:
        """Record step and worker of all listed files after `fed_step`, up to some step.

        For workers whose files have no number, a listing shows that no file is missing.
        """
        for step, name in files:
            if name in self.workers and self.workers[name].unsequenced:
                self.workers[name].passed_step = max(self.workers[name].passed_step, step)

    @property
    def names_known(self) -> bool:
        """True if every awaited worker has written a file."""
        if self.unseen_given_up:
            return True
        return self.num_workers is not None and len(self.workers) >= self.num_workers

    @property
    def has_forgotten(self) -> bool:
        """True if seen files were dropped because of the limit."""
        return any(worker.forgotten for worker in self.workers.values())

    @property
    def has_unnumbered(self) -> bool:
        """True if some worker's files have no numbers, as with the original client."""
        return any(worker.unsequenced for worker in self.workers.values())

    @property
    def room(self) -> int:
        """Number of further files that can wait."""
        return MAX_PENDING - sum(len(worker.pending) for worker in self.workers.values())

    def needed_scan(self, *, has_changes: bool) -> Scan | None:
        """Return the listing that is needed, or unfinished; None if known files show all others.

        `has_changes` is True if an unknown file was seen since the last listing.
        """
        if self.scan is not None:
            return self.scan
        workers = self.workers.values()
        is_unnumbered = any(0 in worker.pending.values() for worker in workers)
        has_holes = any(worker.has_new_hole for worker in workers)
        lacks_names = bool(workers) and not self.names_known
        is_forgotten = self.has_forgotten
        is_needed = is_forgotten or (has_changes and (is_unnumbered or has_holes or lacks_names))
        if not is_needed or self.room <= 0:
            return None
        is_all = is_unnumbered or is_forgotten
        last = None if is_all else max(self.pending_steps(), default=self.fed_step)
        return Scan(self.fed_step, last)

    def is_known(self, step: int, worker: str) -> bool:
        """Return whether a file was seen, or cannot be an unknown one of this run."""
        progress = self.workers.get(worker)
        if progress is None:
            return False
        is_passed = not progress.unsequenced and step <= progress.passed_step
        return is_passed or step in progress.pending or (step, worker) in self.unreadable

    def forget_surplus(self) -> None:
        """Drop the files of the highest steps if more than `MAX_PENDING` wait."""
        surplus = -self.room
        if surplus <= 0:
            return
        files = ((step, name) for name, each in self.workers.items() for step in each.pending)
        for step, name in sorted(files, reverse=True)[:surplus]:
            worker = self.workers[name]
            number = worker.pending.pop(step)
            if number:
                worker.remove(number)
            else:
                worker.unsequenced -= 1
            worker.passed_step = min(worker.passed_step, step - 1)
            worker.forgotten = True

    def ready_steps(self) -> list[int]:
        """Return the steps that can be fed, in order."""
        if not self.names_known:
            return []
        passed = [each.passed_step for each in self.workers.values() if not each.given_up]
        steps = self.pending_steps()
        return [step for step in steps if step <= min(passed)] if passed else steps

    def pending_steps(self) -> list[int]:
        """Return the waiting steps, in order."""
        return sorted({step for worker in self.workers.values() for step in worker.pending})

    def writers(self, step: int) -> list[str]:
        """Return the workers whose file of a waiting step was seen."""
        return sorted(name for name, worker in self.workers.items() if step in worker.pending)

    def mark_fed(self, step: int) -> None:
        """Record that a step was fed; earlier ones can no longer be fed."""
        self.fed_step = step
        for worker in self.workers.values():
            worker.pending.pop(step, None)

    def note_waiting(self, now: float) -> None:
        """Record the first waiting step and when its wait began; `now` is in seconds."""
        first = min(self.pending_steps(), default=None)
        if first is None:
            self.waiting = None
        elif self.waiting is None or first > self.waiting.step:
            self.waiting = Waiting(first, now)
        elif first < self.waiting.step:
            self.waiting = Waiting(first, self.waiting.since)

    def is_overdue(self, now: float, patience: Patience) -> bool:
        """Return whether the first waiting step has waited long enough."""
        if self.waiting is None:
            return False
        waited = now - self.waiting.since
        others = self.has_forgotten or len(self.pending_steps()) > patience.steps
        return waited >= patience.seconds * (1 if others else _LONGEST_WAIT)

    def give_up(self) -> tuple[int, str]:
        """Stop waiting for the workers of the first waiting step; return how many and which."""
        if self.waiting is None:
            return 0, ""
        step = self.waiting.step
        silent = sorted(
            name
            for name, worker in self.workers.items()
            if worker.passed_step < step and not worker.given_up
        )
        for name in silent:
            self.workers[name].give_up(step)
        shown = silent[:_NAMES_SHOWN]
        if len(silent) > len(shown):
            shown.append(f"{len(silent) - len(shown)} more workers")
        num_unseen = 0
        if not self.names_known:
            self.unseen_given_up = True
            num_unseen = max((self.num_workers or 0) - len(self.workers), 0)
            shown.append("workers without any file")
        return len(silent) + num_unseen, ", ".join(shown)

    def num_seen(self, worker: str) -> int:
        """Return how many files of a worker were seen."""
        unreadable = sum(name == worker for _, name in self.unreadable)
        return self.workers.get(worker, WorkerProgress()).num_seen + unreadable

    def count_late(self, listed: Mapping[str, int]) -> None:
        """Count listed files without a number as late if they were not seen.

        `listed` is the number of files of each worker in a full listing.
        """
        for name, count in listed.items():
            missing = count - self.num_seen(name)
            worker = self.workers.get(name, WorkerProgress())
            if missing > 0 and not worker.seen:
                self.late += missing
                worker.unsequenced += missing
                self.workers[name] = worker
