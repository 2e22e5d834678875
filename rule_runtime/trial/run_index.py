"""Finds all index files of one run while they are written, and the last complete step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Final

from hook_layer.format.paths import IndexName
from hook_layer.storage.base import Store
from rule_runtime.trial.run_files import named_run, newest_run
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files

__all__ = ["StepIndex"]

_logger: Final = logging.getLogger("stepwatch")

_FOREIGN_LOOKED_AT: Final = 16
"""Files of other runs, per worker, that a refresh checks again: they may be overwritten."""


class StepIndex:
    """Finds the index files of one run incrementally.

    A listing starts after the last complete step, so it stays short in a long run. Files without
    sequence numbers are always listed from the beginning, but each is read once. Files that arrive
    late are found, too.

    Args:
        store: The trial's root.
        range_steps: Steps to read, from the first to before the second; None for no limit.
        run: RunId of the run; None for files without one. By default, the run of the folder. Files
            of other runs are ignored.

    Attributes:
        files: The run's files by step and worker.
        problems: Problems of files that could not be parsed, by key.
        run: RunId of the run; None while it is unknown.
        is_open: True once the run is known.
        end: First step that is not read; None for no limit.
    """

    def __init__(
        self,
        store: Store,
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        run: str | EllipsisType | None = ...,
    ) -> None:
        self._store = store
        self.is_open = run is not ...
        self.run = None if run is ... else run
        begin, end = range_steps or (None, None)
        self._begin = begin or 0
        self.end = end
        self.files: dict[int, dict[str, StepFile]] = {}
        self.problems: dict[str, str] = {}
        self._workers: dict[str, _WorkerFiles] = {}
        self._num_workers = 0
        self._foreign: dict[str, IndexName] = {}

    @property
    def workers(self) -> list[str]:
        """The workers seen, sorted."""
        return sorted(self._workers)

    @property
    def num_workers(self) -> int:
        """Number of workers that the files state; 0 if they state none."""
        return self._num_workers

    def has_all(self, sequences: Mapping[str, int]) -> bool:
        """Return whether every file of the run is known."""
        return (
            0 < self._num_workers <= len(sequences)
            and self._workers.keys() <= sequences.keys()
            and all(
                last == 0 or (worker in self._workers and self._workers[worker].has_all(last))
                for worker, last in sequences.items()
            )
        )

    def refresh(self, *, is_last: bool = False) -> list[StepFile]:
        """Find and read new files; return those of this run in step order.

        Args:
            is_last: True once the run has ended: files of other runs are checked again, too.
        """
        if not self.is_open:
            return self._open()
        new: list[StepFile] = []
        keys = self._unread_keys() + (list(self._foreign) if is_last else self._overwritten_keys())
        while keys:
            own = self.read(keys)
            new.extend(own)
            keys = self._overwritten_keys() if own and not is_last else []
        return sorted(new, key=lambda file: (file.step, file.worker))

    def read(self, keys: Iterable[str]) -> list[StepFile]:
        """Read files; return those of this run in step order."""
        return [file for file in load_step_files(self._store, keys) if self._take(file)]

    def _open(self) -> list[StepFile]:
        """Find out which run the folder holds, and add its files."""
        self.run = named_run(self._store)
        if self.run is not None:
            self.is_open = True
            return self.refresh()
        files = load_step_files(self._store, self._unread_keys())
        if not files:
            return []  # no file names the run yet
        self.run, self.is_open = newest_run(files), True
        return [file for file in files if self._take(file)]

    def passed_step(self, num_workers: int) -> int:
        """Return the last step up to which every worker's files are known; -1 if there is none."""
        if not self._workers or len(self._workers) < num_workers:
            return -1
        if self._are_all_numbered:
            return min(worker.passed_step for worker in self._workers.values())
        # Files can arrive in any order: those before the last common step are late or lost.
        return max((s for s, files in self.files.items() if len(files) >= num_workers), default=-1)

    def last_step_of(self, worker: str) -> int:
        """Return the last step with a known file of a worker; -1 if there is none."""
        return self._workers[worker].last_step if worker in self._workers else -1

    @property
    def _are_all_numbered(self) -> bool:
        """True if sequence numbers show missing files; a range hides the numbers before it."""
        return not self._begin and all(w.is_sequenced for w in self._workers.values())

    def _unread_keys(self) -> list[str]:
        is_known = self._num_workers > 0 and self._are_all_numbered
        after = self.passed_step(self._num_workers) if is_known else -1
        keys = []
        for key, name in list_index_files(self._store, after_step=max(after, self._begin - 1)):
            if self.end is not None and name.step >= self.end:
                break
            is_read = name.worker in self.files.get(name.step, ()) or key in self.problems
            if not is_read and key not in self._foreign:
                keys.append(key)
        return keys

    def _overwritten_keys(self) -> list[str]:
        """Return keys that held files of another run and may hold this run's now.

        For each worker, these are the keys right after its last file, and all earlier keys if a
        file is missing.
        """
        behind: dict[str, int] = {}
        keys = []
        for key, name in sorted(self._foreign.items(), key=lambda item: item[1].step):
            worker = self._workers.get(name.worker)
            if worker is not None and name.step <= worker.last_step:
                keys += [key] if worker.has_hole else []
            elif behind.setdefault(name.worker, 0) < _FOREIGN_LOOKED_AT:
                behind[name.worker] += 1
                keys.append(key)
        return keys

    def _take(self, file: StepFile) -> bool:
        if file.index is None:
            if file.key not in self.problems:
                _warn_of_damage(file)
            self.problems[file.key] = file.problem or ""
            return False
        if file.index.run != self.run:
            self._foreign[file.key] = IndexName(file.step, file.worker)
            return False
        self._foreign.pop(file.key, None)
        self.files.setdefault(file.step, {})[file.worker] = file
        worker = self._workers.setdefault(file.worker, _WorkerFiles())
        worker.add(file.step, file.index.sequence, file.index.skipped or 0)
        self._num_workers = max(self._num_workers, file.index.workers or 0)
        return True


def _warn_of_damage(file: StepFile) -> None:
    problem = (file.problem or "").removeprefix(file.key).lstrip(": ")
    _logger.warning(
        "%s is damaged: %s; step %s of %s is left out", file.key, problem, file.step, file.worker
    )


class _WorkerFiles:
    """The sequence numbers of one worker's files."""

    def __init__(self) -> None:
        self.is_sequenced = True
        self.last_step = -1
        self._contiguous = 0
        self._contiguous_step = -1
        self._ahead: dict[int, tuple[int, int]] = {}

    @property
    def has_hole(self) -> bool:
        return bool(self._ahead)

    def has_all(self, last: int) -> bool:
        return self.is_sequenced and self._contiguous >= last

    @property
    def passed_step(self) -> int:
        return self._contiguous_step

    def add(self, step: int, sequence: int | None, skipped: int) -> None:
        self.last_step = max(self.last_step, step)
        if sequence is None:
            self.is_sequenced = False
        elif sequence > self._contiguous:
            # Skipped numbers never come, so it directly follows the earlier files.
            self._ahead[max(sequence - skipped, self._contiguous + 1)] = sequence, step
        while (following := self._ahead.pop(self._contiguous + 1, None)) is not None:
            self._contiguous, its_step = following
            self._contiguous_step = max(self._contiguous_step, its_step)
