"""Decides from the files of a run which collections its hook saved.

A collections file lists a framework's own collections even if they are not saved. It names the
saved ones; in files that do not, a framework's own ones count as saved if they have a saved tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from hook_layer import frameworks
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.storage.base import Store
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.framework import framework_of_collections
from rule_runtime.trial.collection_reader import CollectionReader, members
from rule_runtime.trial.step_index import list_index_files, load_step_files

__all__ = ["SavedCollections"]

_OF_ALL: Final = frozenset(
    {"all", "biases", "default", "gradients", "losses", "metrics", "weights"}
)
_OF_KERAS: Final = _OF_ALL | {"inputs", "layers", "optimizer_variables", "outputs", "sm_metrics"}
_OF_TREES: Final = frozenset({"feature_importance", "hyperparameters", "trees"})
_OWN: Final[Mapping[frameworks.Framework, frozenset[str]]] = {
    frameworks.TORCH: _OF_ALL,
    frameworks.MXNET: _OF_ALL,
    frameworks.KERAS: _OF_KERAS,
    frameworks.TENSORFLOW: _OF_KERAS,
    frameworks.XGBOOST: _OF_ALL
    | _OF_TREES
    | {"average_shap", "full_shap", "labels", "predictions"},
}
"""Collections that a hook lists although it may not save them, in files that name no saved ones."""


class SavedCollections:
    """The collections that a hook saved.

    Args:
        store: The run's root.
        reader: The reader of its collections, if it has one.

    Attributes:
        are_known: Whether a file describes them.
        framework: The framework of the run.
    """

    def __init__(self, store: Store, reader: CollectionReader | None = None) -> None:
        reader = reader or CollectionReader(store)
        self._files = reader.load_all(reader.workers())
        self._matcher = reader.matcher
        self.are_known = bool(self._files)
        self.framework = framework_of_collections(self._files[0].collections if self._files else {})
        entries = (entry for file in self._files for entry in file.collections.values())
        self._listed = {name for entry in entries for name in entry.tensor_names}
        self._store = store

    @cached_property
    def _names(self) -> list[str]:
        """Names of the saved tensors."""
        return sorted(self._listed | _names_in_steps(self._store))

    def missing(self, needs: Iterable[CollectionConfig]) -> frozenset[str]:
        """Return the needed collections that the framework can fill and the hook did not save."""
        needed = [each for each in needs if each.name not in self.framework.facts.unfilled]
        return frozenset(each.name for each in needed if not self._is_saved(each))

    def _is_saved(self, need: CollectionConfig) -> bool:
        needs_values = need.parameters.get("save_raw_tensor") == "True"
        return any(
            self._is_in(file, need.name)
            and not (needs_values and _has_no_values(file.collections.get(need.name)))
            for file in self._files
        )

    def _is_in(self, file: CollectionsFile, name: str) -> bool:
        if file.saved is None:
            is_saved = name in file.collections and name not in _OWN.get(self.framework, _OF_ALL)
        else:
            is_saved = not {name, CollectionKeys.ALL}.isdisjoint(file.saved)
        return is_saved or bool(members(file, name, self._names, self._matcher))


def _names_in_steps(store: Store) -> set[str]:
    """Return the tensors of the first and the last index file."""
    keys = [key for key, _ in list_index_files(store)]
    files = load_step_files(store, list(dict.fromkeys((*keys[:1], *keys[-1:]))))
    indexes = [file.index for file in files if file.index is not None]
    with_values = {row.name for index in indexes for row in index.locations}
    return with_values | {row.name for index in indexes for row in index.shapes}


def _has_no_values(entry: CollectionEntry | None) -> bool:
    stored = None if entry is None else entry.reduction_config
    return stored is not None and stored.get("save_raw_tensor") is False
