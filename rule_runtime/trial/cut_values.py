"""Lists tensors stored with only their first rows, and tensors merged into one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from hook_layer.format.cut_values import CutValue, listed
from hook_layer.format.index import IndexFile
from hook_layer.storage.base import Store
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files

__all__ = ["CutValues"]

_LISTED_AT_ONCE: Final = 1000
_MAX_NAMED: Final = 3


class CutValues:
    """Collects truncated and merged tensors from index files in step order."""

    def __init__(self) -> None:
        self._merged: dict[str, int] = {}
        self._cut: dict[str, CutValue] = {}
        self._steps: dict[str, int] = {}

    def add(self, files: Iterable[StepFile]) -> None:
        """Add index files.

        Args:
            files: The files; files of one step are adjacent.
        """
        for file in files:
            for found in () if file.index is None else _cut_in(file.index):
                known = self._cut.get(found.name)
                is_of_step = self._steps.get(found.name) == file.step  # of another worker
                steps = (0 if known is None else known.steps) + (not is_of_step)
                self._cut[found.name] = replace(found, steps=steps)
                self._steps[found.name] = file.step
            self._merged |= {} if file.index is None else file.index.merged

    def __str__(self) -> str:
        """Return one line about truncated and merged tensors; empty if there are none."""
        return "; ".join(filter(None, (self._cut_text(), self._merged_text())))

    def _merged_text(self) -> str:
        if not self._merged:
            return ""
        most = sorted(self._merged.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{name} ({count:,} tensors)" for name, count in most[:_MAX_NAMED])
        more = len(most) - _MAX_NAMED
        return (
            "steps with too many tensors have one entry for the calls of a module, with the "
            f"statistics of all and the value of the first: {named}"
            + (f" and {more:,} more" if more > 0 else "")
        )

    def _cut_text(self) -> str:
        if not self._cut:
            return ""
        return (
            "to save space, only the first rows of some values are stored (max_step_bytes, "
            "max_run_bytes of the hook); statistics are of whole tensors: "
            f"{listed(list(self._cut.values()))}"
        )

    @classmethod
    def of_one_step(cls, store: Store) -> CutValues:
        """Return what was truncated at one step of a run; makes two requests."""
        found = cls()
        last = deque(islice(list_index_files(store), _LISTED_AT_ONCE), maxlen=1)
        found.add(load_step_files(store, [key for key, _ in last]))
        return found


def _cut_in(index: IndexFile) -> Iterator[CutValue]:
    if not index.first_rows:
        return
    shapes = {row.name: row.shape for row in index.shapes}
    if index.statistics is not None:
        shapes |= dict(zip(index.statistics.tensors, index.statistics.shapes, strict=True))
    for name, rows in index.first_rows.items():
        shape = shapes.get(name)
        yield CutValue(name, rows, max(rows, shape[0] if shape else 1, 1))
