"""Tracks the index files of a run, and which steps can be fed to a rule; no storage access.

Each worker numbers its index files 1, 2, 3, ... in step order. Once files 1 to n were seen,
everything up to the step of file n is known, even skipped steps. A step is fed once that holds for
every worker. Files of the original client have no numbers; a listing replaces them, because its
workers also write in step order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rule_runtime.engine.json_codec import JsonRecord
from rule_runtime.engine.worker_progress import WorkerProgress

__all__ = ["MAX_PENDING", "Finishing", "Patience", "Progress", "Replaying", "Scan", "Waiting"]

MAX_PENDING: Final = 1000
"""Maximum number of waiting files over all workers; others are found again later."""

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


class Waiting(NamedTuple):
    """The first waiting step.

    Attributes:
        since: When it became the first waiting step, seconds since the epoch.
        looked: True once a listing has searched for the files that it waits for.
    """

    step: int
    since: float
    looked: bool = False


class Scan(NamedTuple):
    """An unfinished listing that looks for lost files.

    Attributes:
        after: Files of this step and earlier ones were read.
        last: The last step to read; None for all.
        brief: True if it ends when it finds nothing new.
    """

    after: int
    last: int | None
    brief: bool = False


@dataclass(frozen=True)
class Finishing(JsonRecord):
    """The end of a run without a verdict yet.

    Attributes:
        last_sequences: Number of the last index file of each worker, from the end marker.
        after: Files of this step and earlier ones were listed; None before the listing began.
        shown: Number of files of each worker that the listing has shown so far.
    """

    last_sequences: Mapping[str, int] = field(default_factory=dict)
    after: int | None = None
    shown: Mapping[str, int] = field(default_factory=dict)


class Replaying(NamedTuple):
    """An unfinished replay: the run is evaluated from its first step again.

    Attributes:
        after: The last step that was evaluated again.
        found: True if the state's evidence is the replay's, not that of the first evaluation.
    """

    after: int = -1
    found: bool = False


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
