"""A trial: the tensors of one run, as they were saved or while they are being saved.

The methods and their keywords are those of the original client's `Trial`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hook_layer.format.collections_file import CollectionEntry
from hook_layer.format.index import IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import split_reduction_name
from hook_layer.storage.base import Store
from rule_runtime.trial.collection_reader import members
from rule_runtime.trial.errors import TensorUnavailable
from rule_runtime.trial.run_steps import RunSteps
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor import Tensor
from rule_runtime.trial.tensor_steps import TensorGroup

__all__ = ["Trial"]


class Trial(RunSteps):
    """The tensors of one run.

    Args:
        store: The trial's root.
        name: Name of the trial.
        range_steps: Global steps to look at, from the first to before the second.
        cache: True to keep the values that were read in memory.
        sleep: Waits a number of seconds.

    Attributes:
        name: Name of the trial.
        path: Where it is.
        cache: True if values are kept in memory.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        range_steps: tuple[int | None, int | None] | None = None,
        cache: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(store, range_steps=range_steps, sleep=sleep)
        self.name = name
        self.path = store.uri
        self.cache = cache
        self._tensors: dict[str, Tensor] = {}
        self._groups: dict[tuple[Any, ...], TensorGroup] = {}
        self._last_added = (IndexFile(ModeKeys.GLOBAL, 0, None), TensorGroup())
        self.refresh()

    def __repr__(self) -> str:
        return f"<Trial {self.name!r} at {self.path}: {len(self._files)} steps>"

    def _add(self, file: StepFile) -> None:
        super()._add(file)
        index = file.index
        if index is None:
            return
        last, group = self._last_added
        block = () if index.statistics is None else index.statistics.tensors
        last_block = () if last.statistics is None else last.statistics.tensors
        # Files parsed one after the other share what is equal.
        is_alike = index.locations is last.locations and block is last_block
        if not (is_alike and index.shapes == last.shapes):
            group = self._group_of(index, block)
            self._last_added = (index, group)
        group.add(file)

    def _group_of(self, index: IndexFile, block: tuple[str, ...]) -> TensorGroup:
        names = (tuple([row.name for row in index.locations]), index.shapes, block)
        group = self._groups.get(names)
        if group is None:
            group = self._groups[names] = TensorGroup()
            for name in (*names[0], *(shape.name for shape in index.shapes), *block):
                self._tensor_of(name).join(group)
            for shape in index.shapes:
                self._tensor_of(shape.name).original_name = shape.original_name
        return group

    def _tensor_of(self, stored_name: str) -> Tensor:
        reduction = split_reduction_name(stored_name)
        name = stored_name if reduction is None else reduction[0]
        return self._tensors.setdefault(name, Tensor(name, self))

    def tensor(self, tname: str) -> Tensor:
        """Return a tensor.

        Args:
            tname: Its name.

        Raises:
            TensorUnavailable: If no tensor has the name.
        """
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname)
        return self._tensors[tname]

    def has_tensor(self, tname: str) -> bool:
        """Tell whether a tensor was saved.

        Args:
            tname: Its name.
        """
        if tname not in self._tensors:
            self.maybe_refresh()
        return tname in self._tensors

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | Sequence[str] | None = None,
        collection: str | CollectionEntry | None = None,
    ) -> list[str]:
        """Return names of saved tensors, sorted; the union where regex and collection are given.

        Args:
            show_prefixed_tensors: True to see names that begin with `smdebug_` too.
            step: Only tensors of this step, counted in `mode`.
            mode: Only tensors of this mode; GLOBAL for all.
            regex: Regular expressions, one of which must be found in the name.
            collection: A collection that the tensor must belong to.

        Raises:
            PatternError: If a regular expression of the collection could take too long.
        """
        self.maybe_refresh()
        global_step = None if step is None else self.global_step(mode, step)
        if step is not None and global_step is None:
            return []
        names = [
            name
            for name, tensor in self._tensors.items()
            if (show_prefixed_tensors or not name.startswith("smdebug_"))
            and tensor.is_saved(mode, global_step)
        ]
        if regex is not None or collection is not None:
            return sorted(self._selected(names, regex, collection))
        return sorted(names)

    def collections(self) -> dict[str, CollectionEntry]:
        """Return the collections of all workers by name."""
        merged: dict[str, CollectionEntry] = {}
        for worker in self._collection_reader.workers():
            file = self._collection_reader.load(worker, again=not self.loaded_all_steps)
            for name, entry in (file.collections if file is not None else {}).items():
                other = merged.get(name, entry)
                tensor_names = sorted({*other.tensor_names, *entry.tensor_names})
                patterns = dict.fromkeys((*other.include_regex, *entry.include_regex))
                merged[name] = replace(
                    other, tensor_names=tuple(tensor_names), include_regex=tuple(patterns)
                )
        return merged

    def collection(self, coll_name: str) -> CollectionEntry:
        """Return a collection; an empty one if it was not saved.

        Args:
            coll_name: Its name.
        """
        return self.collections().get(coll_name, CollectionEntry(coll_name))

    def _selected(
        self,
        names: Sequence[str],
        regex: str | Sequence[str] | None,
        collection: str | CollectionEntry | None,
    ) -> set[str]:
        patterns = [regex] if isinstance(regex, str) else list(regex or ())
        searches = [re.compile(pattern).search for pattern in patterns]
        found = {name for name in names if any(search(name) for search in searches)}
        if collection is not None:
            wanted = collection if isinstance(collection, str) else collection.name
            reader = self._collection_reader
            for worker in reader.workers() or [""]:
                file = reader.load(worker, again=True) if worker else None
                found |= members(file, wanted, names, reader.matcher)
        return found
