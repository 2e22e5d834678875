"""Limits what one job may take of an evaluator's process, so that other jobs do not wait for it.

Messages above a job's limit are dropped. The next message that is admitted finds the files between
by a listing, so their steps are evaluated in a batch; so does the sweep, and the end of the run.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lambdas.evaluate_rule.messages import TensorObject

__all__ = [
    "BATCH_NOTE",
    "BURST",
    "BURST_OF_ONE_RULE",
    "MAX_BATCH_S",
    "MAX_JOB_BYTES",
    "JobLimits",
    "TimeBudget",
]

BATCH_NOTE: Final = "its files came faster than allowed: steps were evaluated in batches"
MAX_BATCH_S: Final = 1.0
"""Maximum time of a call for a job above its limit, seconds; other jobs wait no longer."""
MAX_JOB_BYTES: Final = 256 << 20
"""Bytes of a job's index files that are evaluated as they come, in a minute: parsing them takes a
process some twenty seconds."""
_MINUTE_S: Final = 60.0
BURST: Final = 16 / 300
"""Share of a minute's limit that may come at once: by default 16 files, a step of 16 ranks, which
take 29 rules two seconds. Other jobs wait that long when a job begins to write too much."""
BURST_OF_ONE_RULE: Final = 64 / 300
"""The same for a function of one rule: by default 64 files, which take it less than a second."""
_BATCH_EVERY_S: Final = 30.0
"""Minimum interval of batches in one process, seconds; they take a thirtieth of its time."""
_MAX_FAILURES: Final = 5
_PAUSE_S: Final = 30.0
"""Seconds without an evaluation after so many failures in a row; the messages come back later."""
_MAX_JOBS: Final = 1000


@dataclass(frozen=True)
class TimeBudget:
    """A part of the time of one call.

    Attributes:
        remaining_ms: Returns the function's remaining time, milliseconds.
        end_ms: Remaining time at which the budget ends, milliseconds.
    """

    remaining_ms: Callable[[], float]
    end_ms: float

    def may_go_on(self) -> bool:
        """Return whether time is left."""
        return self.remaining_ms() >= self.end_ms

    def at_most(self, seconds: float) -> TimeBudget:
        """Return a budget that ends after some seconds at the latest."""
        return replace(self, end_ms=max(self.end_ms, self.remaining_ms() - 1000 * seconds))

    def share(self, num: int) -> TimeBudget:
        """Return the next of several equal budgets that share the rest of this one.

        Args:
            num: Number of remaining budgets.
        """
        if num == 1:
            return self
        left_ms = self.remaining_ms()
        if left_ms <= self.end_ms:
            return self
        return replace(self, end_ms=left_ms - (left_ms - self.end_ms) / num)


@dataclass
class _Job:
    """What a job may still take, as a share of a minute's limit."""

    at: float
    share: float
    limited_until: float = 0.0
    batch_at: float = 0.0
    failures: int = 0
    paused_until: float = 0.0


class JobLimits:
    """The limits of jobs in one process.

    Args:
        max_files: Files of a job that are evaluated as they come, in a minute.
        max_bytes: Bytes of them, likewise.
        clock: Seconds, monotonic.
        jitter: Spreads the batches of several processes.
        burst: Share of the limits that may come at once.
    """

    def __init__(
        self,
        max_files: int,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        jitter: random.Random | None = None,
        burst: float = BURST,
    ) -> None:
        self._max_files, self._max_bytes, self._burst = max_files, max_bytes, burst
        self._clock = clock
        self._jitter = jitter or random.Random()  # noqa: S311 - only spreads load
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def admit(self, root_uri: str, objects: Sequence[TensorObject]) -> Sequence[TensorObject]:
        """Return the objects of a job to evaluate now, always with end markers.

        Args:
            root_uri: The trial's root.
            objects: New objects in it.
        """
        now, job = self._clock(), self._job(root_uri)
        of_files = len(objects) / self._max_files
        of_bytes = sum(found.size for found in objects) / self._max_bytes
        taken = of_files + of_bytes
        # A full batch may exceed a burst.
        if job.share >= max(min(of_files, self._burst), of_bytes):
            job.share = max(job.share - taken, -1)
            return objects
        # Dropped messages count, too: a job that goes on like this has batches only.
        job.share = min(job.share, max(job.share - taken, -self._burst))
        job.limited_until = now + _MINUTE_S
        is_due = now >= job.batch_at
        if is_due:  # at different times in different processes
            job.batch_at = now + self._jitter.uniform(1, 1.5) * _BATCH_EVERY_S
        files = [found for found in objects if not found.is_end_marker]
        smallest = sorted(files, key=lambda found: found.size)[: int(is_due)]
        return [*smallest, *(found for found in objects if found.is_end_marker)]

    def is_exceeded(self, root_uri: str) -> bool:
        """Return whether a job exceeded its limit within the last minute."""
        return self._clock() < self._job(root_uri).limited_until

    def is_paused(self, root_uri: str) -> bool:
        """Return whether a job failed so often that it has to wait."""
        return self._clock() < self._job(root_uri).paused_until

    def report(self, root_uri: str, *, has_failed: bool) -> None:
        """Record the result of an evaluation of a job."""
        job = self._job(root_uri)
        job.failures = job.failures + 1 if has_failed else 0
        if job.failures >= _MAX_FAILURES:
            job.paused_until, job.failures = self._clock() + _PAUSE_S, 0

    def _job(self, root_uri: str) -> _Job:
        now = self._clock()
        job = self._jobs.setdefault(root_uri, _Job(now, self._burst))
        self._jobs.move_to_end(root_uri)
        if len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        job.share = min(job.share + (now - job.at) / _MINUTE_S, self._burst)
        job.at = now
        return job
