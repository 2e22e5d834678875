"""Maps a selection of tensors to rows of an index file's statistics; caches the result."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.index import TensorLocation
from hook_layer.format.reductions import base_tensor_name
from rule_runtime.trial.collection_reader import CollectionReader, members

__all__ = ["Layout", "Layouts", "SelectionKey", "tensor_rows"]

_MAX_LAYOUTS: Final = 128

SelectionKey = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of collections and regular expressions."""


def tensor_rows(block: Sequence[str], others: Iterable[str]) -> dict[str, int]:
    """Return the row of each tensor in a file's statistics; -1 for a tensor without a row.

    Statistics of a stored reduction are not those of its tensor.

    Args:
        block: Names of the rows of the statistics.
        others: Further tensors, or reductions of tensors, in the file.
    """
    rows = {name: at for at, name in enumerate(block) if base_tensor_name(name) == name}
    for name in (*others, *block):
        rows.setdefault(base_tensor_name(name), -1)
    return rows


class Layout:
    """The tensors of an index file, with a cache of selections."""

    def __init__(
        self,
        collections: CollectionReader,
        worker: str,
        block: tuple[str, ...],
        located: tuple[str, ...],
    ) -> None:
        self._collections = collections
        self._worker = worker
        self._rows = tensor_rows(block, located)
        self._is_read_anew = False
        self._file: CollectionsFile | None = None  # from which selections were made
        self._generation = collections.generation
        self._selections: dict[SelectionKey, tuple[tuple[str, ...], npt.NDArray[np.intp]]] = {}

    def select(self, key: SelectionKey) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
        """Return the names and statistics rows of a selection; row -1 for a tensor without one.

        Args:
            key: Collections and regular expressions; all tensors if both are empty.
        """
        if self._generation != self._collections.generation:
            self._generation = self._collections.generation
            if self._file is not None and self._collections_file() is not self._file:
                self._selections.clear()
        found = self._selections.get(key)
        if found is None:
            found = self._selections[key] = self._select(*key)
        return found

    def _select(
        self, collections: tuple[str, ...], regex: tuple[str, ...]
    ) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
        if not collections and not regex:
            chosen = tuple(self._rows)
        else:
            if collections:
                self._file = self._collections_file()
            matcher = self._collections.matcher
            found: set[str] = set()
            for collection in collections:
                found |= members(self._file, collection, self._rows, matcher)
            for pattern in regex:
                found |= matcher.found_in(pattern, self._rows)
            chosen = tuple(name for name in self._rows if name in found)
        return chosen, np.array([self._rows[name] for name in chosen], dtype=np.intp)

    def _collections_file(self) -> CollectionsFile | None:
        # New tensors appeared, so the collections file may have grown. Read it once for all
        # selections, because each read is a request.
        again, self._is_read_anew = not self._is_read_anew, True
        return self._collections.load(self._worker, again=again)


class Layouts:
    """The layouts of the index files that were used last."""

    def __init__(self, collections: CollectionReader) -> None:
        self._collections = collections
        self._known: OrderedDict[tuple[str, tuple[str, ...], tuple[str, ...]], Layout] = (
            OrderedDict()
        )
        self._last: dict[str, tuple[tuple[str, ...], tuple[TensorLocation, ...], Layout]] = {}

    def get(
        self, worker: str, block: tuple[str, ...], locations: tuple[TensorLocation, ...]
    ) -> Layout:
        """Return the layout of an index file."""
        last = self._last.get(worker)
        # Consecutive files share equal objects.
        if last is not None and last[0] is block and last[1] is locations:
            return last[2]
        key = (worker, block, tuple([row.name for row in locations]))
        layout = self._known.get(key)
        if layout is None:
            layout = self._known[key] = Layout(self._collections, *key)
            if len(self._known) > _MAX_LAYOUTS:
                self._known.popitem(last=False)
                self._last.clear()
        self._last[worker] = (block, locations, layout)
        return layout
