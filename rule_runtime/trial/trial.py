"""The tensors of one run, readable during and after training.

The methods and their keywords are those of the original client's `Trial`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy.typing as npt

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.index import IndexFile
from hook_layer.format.known_collections import meant_collection
from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import base_tensor_name
from hook_layer.storage.base import Store
from rule_runtime.trial.errors import TensorUnavailable
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.notebook import CollectionsByName
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor import Tensor
from rule_runtime.trial.tensor_steps import TensorGroup
from rule_runtime.trial.trial_collections import (
    TrialCollection,
    built_in_collection,
    collection_members,
    collection_name,
    merged_collections,
)
from rule_runtime.trial.trial_views import TrialViews

__all__ = ["Trial"]

_logger: Final = logging.getLogger("stepwatch")

_Regex: TypeAlias = "str | Sequence[_Regex]"


class Trial(TrialViews):
    """The tensors of one run; two trials with the same name and path are equal.

    Args:
        store: The trial's root.
        name: Name of the trial.
        range_steps: Global steps to read, from the first to before the second.
        cache: True to keep values that were read in memory.
        sleep: Waits for a number of seconds.

    Attributes:
        name: Name of the trial.
        path: Its path or URI.
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
        self._collections: list[CollectionsFile] = []
        self._included: dict[str, list[str]] = {}
        self._are_collections_old = True
        self._has_final_collections = False
        self._last_added = (IndexFile(ModeKeys.GLOBAL, 0, None), TensorGroup())
        self._collection_reader.workers()
        self.refresh()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        return (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def _add(self, file: StepFile) -> None:
        super()._add(file)
        index = file.index
        if index is None:
            return
        self._are_collections_old = True
        last, group = self._last_added
        block = () if index.statistics is None else index.statistics.tensors
        last_block = () if last.statistics is None else last.statistics.tensors
        # Files that are parsed in sequence share equal objects.
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
            stored = (*names[0], *(shape.name for shape in index.shapes), *block)
            group.names = set(map(base_tensor_name, stored))
            for name in dict.fromkeys(map(base_tensor_name, stored)):
                self._tensors.setdefault(name, Tensor(name, self)).join(group)
            for shape in index.shapes:
                tensor = self._tensors[base_tensor_name(shape.name)]
                tensor.original_name = shape.original_name
        return group

    @property
    def global_step_to_tensors_map(self) -> dict[int, set[str]]:
        """The names of the tensors that were saved at each global step."""
        names: dict[int, set[str]] = {}
        for group in self._groups.values():
            for step in group.files:
                names.setdefault(step, set()).update(group.names)
        return dict(sorted(names.items()))

    def tensor(self, tname: str) -> Tensor:
        """Return a tensor.

        Raises:
            TensorUnavailable: If no tensor has the name.
        """
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname)
        return self._tensors[tname]

    def has_tensor(self, tname: str) -> bool:
        """Return whether a tensor was saved."""
        if tname not in self._tensors:
            self.maybe_refresh()
        return tname in self._tensors

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: Mode = ModeKeys.GLOBAL,
        regex: _Regex | None = None,
        collection: object = None,
    ) -> list[str]:
        """Return names of saved tensors, sorted.

        Args:
            show_prefixed_tensors: True to include names that begin with `smdebug_`.
            step: Only tensors of this step, counted in `mode`.
            mode: Only tensors of this mode; GLOBAL for all.
            regex: Regular expressions; the name must match at least one of them.
            collection: A collection that the tensor must belong to, or its name.

        Raises:
            ValueError: If both a regular expression and a collection are given.
            TypeError: If the collection is neither a collection nor a name.
            re.error: If `regex` is not a regular expression.
            PatternError: If a regular expression of the collection could take too long.
        """
        if regex is not None and collection is not None:
            raise ValueError("Only one of `regex` or `collection` can be passed to this method")
        mode = as_mode(mode)
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
            return self._selected(names, regex, collection)
        return sorted(names)

    def tensors(self, **selection: Any) -> list[str]:
        """Return the names of tensors; the original's other name for `tensor_names`."""
        return self.tensor_names(**selection)

    def collections(self) -> CollectionsByName:
        """Return the collections of all workers by name."""
        self.maybe_refresh()
        found = self._merged_collections(None)
        return CollectionsByName({name: self._own(each) for name, each in found.items()})

    def collection(self, coll_name: str) -> TrialCollection:
        """Return a collection; if no worker wrote it, the built-in or an empty one."""
        self.maybe_refresh()
        found = self._merged_collections(coll_name).get(coll_name)
        if found is not None:
            return self._own(found)
        if self._collections:  # just read: it is in none of them
            return self._own(TrialCollection(coll_name))
        matcher = self._collection_reader.matcher
        return self._own(built_in_collection(coll_name, self._tensors, matcher))

    def _own(self, collection: TrialCollection) -> TrialCollection:
        """Return a collection with the expressions that a script included in it."""
        return collection.with_included(self._included.setdefault(collection.name, []))

    # ------------------------------------------------------------------ inputs and outputs of a
    # model

    def inputs(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the model's inputs at a step: the tensors of the collection `inputs`."""
        return self._values_of(step, mode, collection="inputs")

    def labels(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the labels at a step: the tensors with `label` in their names."""
        return self._values_of(step, mode, regex="labels*")

    def predictions(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the model's outputs at a step: the tensors with `prediction` in their names."""
        return self._values_of(step, mode, regex="predictions*")

    def _values_of(
        self, step: int, mode: Mode, *, regex: str | None = None, collection: str | None = None
    ) -> list[npt.NDArray[Any]]:
        names = self.tensor_names(
            show_prefixed_tensors=True, step=step, mode=mode, regex=regex, collection=collection
        )
        # Pass the mode, which the original forgets.
        return [self.tensor(name).value(step, mode) for name in sorted(names, key=_number_in)]

    # ------------------------------------------------------------------ collections

    def _selected(
        self, names: Sequence[str], regex: _Regex | None, collection: object
    ) -> list[str]:
        if collection is not None:
            wanted = collection_name(collection)
            matcher = self._collection_reader.matcher
            found = collection_members(self._collection_files(wanted), wanted, names, matcher)
            for pattern in self._included.get(wanted, ()):
                found |= matcher.found_in(pattern, names)
            if not found:
                meant = meant_collection(wanted)
                hint = f"; did you mean {meant!r}?" if meant else ""
                _logger.warning("No tensors from the collection %s were saved%s", wanted, hint)
            return sorted(found)
        searches = [re.compile(pattern).search for pattern in _patterns(regex)]
        found = {name for name in names if any(search(name) for search in searches)}
        if not found:
            _logger.warning("No tensors matching the regex pattern:%s given were saved", regex)
        return sorted(found)

    def _merged_collections(self, wanted: str | None) -> dict[str, TrialCollection]:
        files = self._collection_files(wanted)
        return merged_collections(files, self._tensors, self._collection_reader.matcher)

    def _collection_files(self, wanted: str | None) -> list[CollectionsFile]:
        """Return the collections files as of the newest index files.

        A worker rewrites its file when it learns more. So each file is read again after
        new steps, and once more at the end.

        Args:
            wanted: The requested collection; None for all.
        """
        reader, has_ended = self._collection_reader, self.loaded_all_steps
        is_old = self._are_collections_old and self._may_have_grown(wanted)
        if is_old or (has_ended and not self._has_final_collections):
            workers = self.worker_set or reader.workers()
            self._collections = reader.load_all(workers, again=True)
            self._are_collections_old, self._has_final_collections = False, has_ended
        elif self.dynamic_refresh and not has_ended:
            # A file that was missing or partial may appear after the steps.
            self._collections = reader.load_all(self.worker_set or reader.workers())
        return self._collections

    def _may_have_grown(self, wanted: str | None) -> bool:  # noqa: ARG002
        """Return whether a collection may have gained tensors since the last index files."""
        return True


def _patterns(regex: _Regex | None) -> Iterator[str]:
    """Yield regular expressions from one, or from nested lists."""
    if isinstance(regex, str):
        yield regex
    else:
        for part in regex or ():
            yield from _patterns(part)


def _number_in(name: str) -> tuple[int, str]:
    """Return the sort key of a model's tensors: the number at the end of the name."""
    number = re.search(r"_([0-9]{1,18})$", name)
    return (0 if number is None else int(number[1]), name)
