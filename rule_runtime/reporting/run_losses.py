"""Reads the last and the best training loss of a run from a bounded number of index files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import numpy as np

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store
from rule_runtime.reporting.run_reader import current_run_of
from rule_runtime.reporting.tensor_kinds import TensorKinds
from rule_runtime.trial.step_index import iter_step_files, list_index_files

__all__ = ["RunLosses"]

_MAX_FILES: Final = 200
_MAX_BYTES: Final = 8 << 20
"""Files and bytes of index files that a sample reads, evenly over the run."""
_MAX_LAST_FILES: Final = 50
"""Last index files that are searched for a training loss, which a validation pass may follow."""
_TRAINING: Final = frozenset({ModeKeys.TRAIN, ModeKeys.GLOBAL})


class RunLosses:
    """The training losses of a run: of each step the first loss of its first worker.

    A loss that is not finite is NaN.

    Args:
        store: The trial's root.

    Attributes:
        run: RunId of the run; None for files of the original client.
        num_steps: Number of steps with index files.
        is_sampled: Whether the best loss is the best of a sample.

    Raises:
        StorageError: The storage cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        keys = [key for key, _ in list_index_files(store)]
        self.run = current_run_of(store, keys[-1]) if keys else current_run_of(store)
        self.num_steps = len({key.rpartition("_worker_")[0] for key in keys})
        self._files = [key for key in keys if key.endswith("_worker_0.json")] or keys
        size = max(store.size(self._files[-1]), 1) if keys else 1
        count = min(len(self._files), _MAX_FILES, max(2, _MAX_BYTES // size))
        chosen = np.linspace(0, len(self._files) - 1, count).astype(int)
        self._sample = [self._files[at] for at in chosen]
        self.is_sampled = len(self._sample) < len(self._files)

    @property
    def last(self) -> float | None:
        """The last loss; None if none was found."""
        return self._losses[-1] if self._newest is None and self._losses else self._newest

    @property
    def is_last_sampled(self) -> bool:
        """Whether the last loss is the last of a sample, as the last files have none."""
        return self.is_sampled and self._newest is None

    @property
    def best(self) -> float | None:
        """The lowest finite loss; None if none was found."""
        return min(filter(math.isfinite, self._losses), default=None)

    @cached_property
    def _newest(self) -> float | None:
        last = reversed(self._files[-_MAX_LAST_FILES:])
        return next((loss for key in last for loss in self._read([key])), None)

    @cached_property
    def _losses(self) -> list[float]:
        return list(self._read(self._sample))

    @cached_property
    def _kinds(self) -> TensorKinds:
        return TensorKinds(self._store)

    def _read(self, keys: Iterable[str]) -> Iterator[float]:
        """Yield the losses of some index files in step order."""
        for file in iter_step_files(self._store, keys):
            index = file.index
            block = None if index is None or index.run != self.run else index.statistics
            if index is None or block is None or index.mode not in _TRAINING:
                continue
            group = self._kinds.group(block.tensors)
            for at in group.scalars["losses"][:1]:
                row = group.rows[at]
                is_bad = block.column("nan")[row] + block.column("inf")[row] > 0
                yield math.nan if is_bad else float(block.column("mean")[row])
