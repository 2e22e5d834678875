"""The index files that were looked at last, for rules that compare a step with those before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store
from rule_runtime.trial.step_index import StepFile, load_step_files

__all__ = ["RecentFiles"]

_KEPT_BYTES: Final = 16 << 20
"""Length of the files that are kept, parsed."""


class RecentFiles:
    """Reads index files, but for the ones that were looked at last.

    Args:
        store: The trial's root.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[int, str], StepFile] = OrderedDict()
        self._kept_bytes = 0

    def keep(self, file: StepFile) -> None:
        """Note a file as looked at.

        Args:
            file: The file.
        """
        known = self._kept.pop((file.step, file.worker), None)
        self._kept[file.step, file.worker] = file
        self._kept_bytes += file.num_bytes - (0 if known is None else known.num_bytes)
        while self._kept_bytes > _KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.num_bytes

    def get(self, step: int, workers: Iterable[str]) -> list[StepFile]:
        """Return index files of one step.

        Args:
            step: Global step.
            workers: Whose; without those that do not exist.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        wanted = [(step, worker) for worker in workers]
        kept = [self._kept[name] for name in wanted if name in self._kept]
        keys = [index_key(*name) for name in wanted if name not in self._kept]
        return [*kept, *load_step_files(self._store, keys)]
