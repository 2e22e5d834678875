"""Limits what one job may take of an evaluator's process, so that other jobs do not wait for it.

Messages above a job's limit are dropped. The next message that is admitted finds the files between
by a listing, so their steps are evaluated in a batch; so does the sweep, and the end of the run.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lambdas.evaluate_rule.messages import TensorObject

__all__ = ["BATCH_NOTE", "MAX_BATCH_S", "MAX_JOB_BYTES", "JobLimits"]

BATCH_NOTE: Final = "its files came faster than allowed: steps were evaluated in batches"
MAX_BATCH_S: Final = 5.0
"""Maximum time of a call for a job above its limit, seconds; other jobs wait no longer."""
MAX_JOB_BYTES: Final = 64 << 20
"""Bytes of a job's index files that are evaluated as they come, in a minute: parsing them takes a
process some five seconds."""
_WINDOW_S: Final = 60.0
_BATCH_EVERY_S: Final = 30.0
"""Interval of batches in one process, seconds; ten processes spend a sixth of their time."""
_MAX_FAILURES: Final = 5
_PAUSE_S: Final = 30.0
"""Seconds without an evaluation after so many failures in a row; the messages come back later."""
_MAX_JOBS: Final = 1000


@dataclass
class _Job:
    """What a job took in the current minute."""

    begin: float
    files: int = 0
    num_bytes: int = 0
    batch_at: float = field(default=-_BATCH_EVERY_S)
    failures: int = 0
    paused_until: float = 0.0


class JobLimits:
    """The limits of jobs in one process.

    Args:
        max_files: Files of a job that are evaluated as they come, in a minute.
        max_bytes: Bytes of them, likewise.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, max_files: int, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_files, self._max_bytes = max_files, max_bytes
        self._clock = clock
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def admit(self, root_uri: str, objects: Sequence[TensorObject]) -> Sequence[TensorObject]:
        """Return the objects of a job to look at now; end markers always are.

        Args:
            root_uri: The trial's root.
            objects: New objects in it.
        """
        now, job = self._clock(), self._job(root_uri)
        job.files += len(objects)
        job.num_bytes += sum(found.size for found in objects)
        if not self.is_exceeded(root_uri):
            return objects
        is_due = now - job.batch_at >= _BATCH_EVERY_S
        job.batch_at = now if is_due else job.batch_at
        files = [found for found in objects if not found.is_end_marker]
        smallest = sorted(files, key=lambda found: found.size)[: int(is_due)]
        return [*smallest, *(found for found in objects if found.is_end_marker)]

    def is_exceeded(self, root_uri: str) -> bool:
        """Return whether a job took more than its limit in this minute."""
        job = self._job(root_uri)
        return job.files > self._max_files or job.num_bytes > self._max_bytes

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
        job = self._jobs.setdefault(root_uri, _Job(now))
        self._jobs.move_to_end(root_uri)
        if len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        if now - job.begin >= _WINDOW_S:
            job.begin, job.files, job.num_bytes = now, 0, 0
        return job
