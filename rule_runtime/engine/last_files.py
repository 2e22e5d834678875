"""Uses the number of files per rank that the end marker has."""

from __future__ import annotations

from collections.abc import Mapping

from rule_runtime.engine.progress import ProgressTracker
from rule_runtime.engine.worker_track import WorkerTrack

__all__ = ["LastFiles"]


class LastFiles:
    """Decides which files of a finished run may still be unknown.

    A folder may hold thousands of files of an earlier run, and only reading a file tells whose it
    is. Since a worker numbers its files in step order, nothing of it lies behind its last one.

    Args:
        tracker: What is known of the run's files; it may learn more.
        sequences: Number of the last file of each worker that the end marker names.
    """

    def __init__(self, tracker: ProgressTracker, sequences: Mapping[str, int]) -> None:
        self._tracker = tracker
        self._sequences = sequences

    @property
    def are_seen(self) -> bool:
        """True if every file that was written has been seen."""
        return self._are_known and not any(map(self._missing, self._sequences))

    @property
    def num_awaited(self) -> int | None:
        """Number of files to be read until all is fed; None if that is not known."""
        if not self._are_known:
            return None
        missing = sum(map(self._missing, self._sequences))
        return missing + sum(len(track.pending) for track in self._tracker.workers.values())

    @property
    def num_lost(self) -> int:
        """Number of files that were to be written, and were not seen."""
        return sum(map(self._lost, self._sequences.keys() | self._tracker.workers.keys()))

    def may_be_own(self, step: int, worker: str) -> bool:
        """Return whether a file may be one of the run that has not been fed yet.

        Args:
            step: Its step.
            worker: Its worker.
        """
        if worker not in self._sequences:
            return not self._are_known
        track = self._tracker.workers.get(worker)
        if track is None:
            return self._sequences[worker] > 0
        if track.unsequenced or track.highest < self._sequences[worker]:
            return True
        if self._missing(worker):
            return step <= max(track.pending, default=-1)
        return step in track.pending

    def are_before(self, step: int) -> bool:
        """Return whether no file of the run that has not been fed yet lies behind a step.

        Args:
            step: The step.
        """
        tracks = self._tracker.workers
        return (
            self._are_known
            and all(name in tracks or last == 0 for name, last in self._sequences.items())
            and all(track.highest >= self._sequences[name] for name, track in tracks.items())
            and step >= max(self._tracker.pending_steps(), default=-1)
        )

    @property
    def _are_known(self) -> bool:
        """True if the last file of every worker is known."""
        tracker = self._tracker
        return (
            tracker.num_workers is not None
            and len(self._sequences) >= tracker.num_workers
            and all(name in self._sequences for name in tracker.workers)
            and not any(track.unsequenced for track in tracker.workers.values())
        )

    def _lost(self, worker: str) -> int:
        track = self._tracker.workers.get(worker, WorkerTrack())
        last = max(self._sequences.get(worker, 0), track.highest)
        return last - sum(high - low + 1 for low, high in track.seen) + track.lost

    def _missing(self, worker: str) -> int:
        track = self._tracker.workers.get(worker)
        complete_to = 0 if track is None else track.complete_to
        return max(self._sequences[worker] - complete_to, 0)
