"""Compares the files of an ended run with the number of files in its end marker."""

from __future__ import annotations

from collections.abc import Mapping

from rule_runtime.engine.progress import Progress, WorkerProgress

__all__ = ["ExpectedFiles"]


class ExpectedFiles:
    """Decides which files of an ended run can still be unknown.

    A folder may hold thousands of files of an earlier run, and only reading a file shows its run.
    Each worker numbers its files in step order, so its last file has the highest step. `sequences`
    has the number of each worker's last file, from the end marker. The progress may change.
    """

    def __init__(self, progress: Progress, sequences: Mapping[str, int]) -> None:
        self._progress = progress
        self._sequences = sequences

    @property
    def num_missing(self) -> int | None:
        """Number of files that were not seen; None if it is unknown."""
        return sum(map(self._missing, self._sequences)) if self._are_known else None

    @property
    def num_lost(self) -> int:
        """Number of files that were written, as far as known, but not seen."""
        lost = 0
        for name in self._sequences.keys() | self._progress.workers.keys():
            worker = self._worker(name)
            last = max(self._sequences.get(name, 0), worker.highest)
            lost += last - worker.num_seen + worker.unsequenced
        return lost

    def may_have(self, step: int, worker: str) -> bool:
        """Return whether a file may be an unknown one of this run."""
        if worker not in self._sequences:
            return not self._are_known
        known = self._worker(worker)
        if step in known.pending:
            return False
        if known.unsequenced or known.highest < self._sequences[worker]:
            return True
        return self._missing(worker) > 0 and step <= max(known.pending, default=-1)

    def end_before(self, step: int) -> bool:
        """Return whether no unfed file exists at this step or later."""
        return (
            self._are_known
            and all(self._worker(name).highest >= last for name, last in self._sequences.items())
            and step > max(self._progress.pending_steps(), default=-1)
        )

    @property
    def _are_known(self) -> bool:
        """True if the number of files of every worker is known."""
        progress = self._progress
        return (
            progress.num_workers is not None
            and len(self._sequences) >= progress.num_workers
            and all(name in self._sequences for name in progress.workers)
            and not progress.has_unnumbered
        )

    def _missing(self, worker: str) -> int:
        return max(self._sequences[worker] - self._worker(worker).complete_to, 0)

    def _worker(self, name: str) -> WorkerProgress:
        return self._progress.workers.get(name, WorkerProgress())
