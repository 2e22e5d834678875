"""Lists the index files of a run, and in which order to read them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hook_layer.storage.base import Store
from rule_runtime.engine.outcome import Evidence
from rule_runtime.reporting.finding_plot import WINDOW
from rule_runtime.trial.step_index import list_index_files

__all__ = ["MAX_WORKERS", "FilesOfRun"]

MAX_WORKERS: Final = 8
"""Number of workers whose steps are read, besides those with findings."""
_KEYS_BETWEEN_LOOKS: Final = 1000
_GOLDEN: Final = 0.6180339887498949
"""The golden section: its multiples are evenly distributed modulo 1."""


@dataclass(frozen=True)
class FilesOfRun:
    """The index files of a folder by step, including those of other runs.

    Attributes:
        by_worker: Key of the file of each step, by worker.
        is_cut: Whether the listing ran out of time.
    """

    steps: Sequence[int]
    by_worker: Mapping[str, Mapping[int, str]]
    last_key: str | None
    is_cut: bool

    @classmethod
    def listed(cls, store: Store, is_late: Callable[[], bool]) -> FilesOfRun:
        """List the files until time runs out.

        Raises:
            StorageError: If the storage fails.
        """
        by_worker: dict[str, dict[int, str]] = {}
        last_key, is_cut = None, False
        for number, (key, name) in enumerate(list_index_files(store), start=1):
            by_worker.setdefault(name.worker, {})[name.step] = key
            last_key = key
            if number % _KEYS_BETWEEN_LOOKS == 0 and is_late():
                is_cut = True
                break
        steps = sorted({step for of_worker in by_worker.values() for step in of_worker})
        return cls(steps, by_worker, last_key, is_cut)

    def around(self, evidence: Sequence[Evidence]) -> list[str]:
        """Return keys of the steps around findings, for the worker of each finding."""
        keys = []
        for found in evidence:
            of_worker = self.by_worker.get(found.worker, {})
            at = bisect_left(self.steps, found.step)
            near = self.steps[max(0, at - WINDOW) : at + WINDOW + 1]
            keys += [of_worker[step] for step in near if step in of_worker]
        return keys

    def sampled(self, limit: int, wanted: set[str]) -> Iterator[str]:
        """Yield keys of at most `limit` steps, of a few workers, coarse first."""
        workers = sorted(self.by_worker)
        chosen = [*workers[:MAX_WORKERS], *sorted(wanted.intersection(workers[MAX_WORKERS:]))]
        for step in _spread(self.steps, limit):
            for worker in chosen:
                if step in self.by_worker[worker]:
                    yield self.by_worker[worker][step]


def _spread(steps: Sequence[int], limit: int) -> Iterator[int]:
    """Yield steps so that every prefix is evenly distributed; the first and last step come first.

    If there are too many steps, it picks one from each of `limit` equal portions, at varying
    positions. So evaluations at every hundredth step are neither always hit nor always missed.
    """
    count = min(len(steps), max(limit, 2))
    portions = [at * len(steps) // count for at in range(count + 1)]
    picked = [
        steps[low + int((high - low) * (at * _GOLDEN % 1.0))]
        for at, (low, high) in enumerate(pairwise(portions))
    ]
    picked[0], picked[-1] = steps[0], steps[-1]
    yield picked[0]
    yield picked[-1]
    bits = max(count - 1, 1).bit_length()
    for number in range(1 << bits):
        at = int(f"{number:0{bits}b}"[::-1], 2)
        if 0 < at < count - 1:
            yield picked[at]
