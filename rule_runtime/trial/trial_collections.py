"""The collections of a trial, merged from all its workers."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.collections_file import CollectionsFile
from rule_runtime.trial.collection_reader import DEFAULT_REGEXES, members
from rule_runtime.trial.name_pattern import NameMatcher, PatternError
from rule_runtime.trial.notebook import collections_html
from rule_runtime.trial.stored_settings import (
    StoredReductionConfig,
    StoredSaveConfig,
    StoredSettings,
)

__all__ = [
    "TrialCollection",
    "built_in_collection",
    "collection_members",
    "collection_name",
    "merged_collections",
]

_logger: Final = logging.getLogger(__name__)


@dataclass
class TrialCollection(StoredSettings):
    """A collection of a trial, with the attributes of the original's `Collection`.

    `include` selects further tensors of the trial; the stored run never changes.

    Attributes:
        name: Its name.
        include_regex: Regular expressions that select members by name.
        tensor_names: Its tensors: those listed by workers, and saved tensors whose names match a
            regular expression.
        reduction_config: The saved reductions; None if no file states them.
        save_config: When each mode was saved; None if no file states it.
        save_histogram: Whether histograms are exported to TensorBoard.
    """

    name: str
    include_regex: list[str] = field(default_factory=list)
    tensor_names: set[str] = field(default_factory=set)
    reduction_config: StoredReductionConfig | None = None
    save_config: StoredSaveConfig | None = None
    save_histogram: bool = True
    _included: list[str] = field(default_factory=list, repr=False, compare=False)

    def include(self, t: str | Sequence[str]) -> None:
        """Add regular expressions, which apply to all uses of the collection in this trial.

        Raises:
            TypeError: `t` is neither a text nor texts.
            re.error: One is not a regular expression.
        """
        patterns = [t] if isinstance(t, str) else list(t)
        for pattern in patterns:
            re.compile(pattern)
        self.include_regex += patterns
        self._included += patterns

    def with_included(self, patterns: list[str]) -> TrialCollection:
        """Add the expressions that `include` added so far, and keep further ones there."""
        self.include_regex += patterns
        self._included = patterns
        return self

    def has_tensor_name(self, tname: str) -> bool:
        """Return whether the collection contains a tensor."""
        return tname in self.tensor_names

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as in the collections file."""
        return {
            "name": self.name,
            "include_regex": list(self.include_regex),
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config and self.reduction_config.to_json_dict(),
            "save_config": self.save_config and self.save_config.to_json_dict(),
            "save_histogram": self.save_histogram,
        }

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> TrialCollection:
        """Return the collection from an entry of a collections file.

        Args:
            params: The entry, as from `to_json_dict`.

        Raises:
            TypeError: The entry is not a mapping, or has no name.
        """
        if not isinstance(params, Mapping) or not isinstance(params.get("name"), str):
            raise TypeError(f"params={params!r:.200} must be a dict with the name of a collection")
        return cls(
            params["name"],
            list(params.get("include_regex") or ()),
            set(params.get("tensor_names") or ()),
            StoredReductionConfig.from_dict(params.get("reduction_config")),
            StoredSaveConfig.from_dict(params.get("save_config")),
            bool(params.get("save_histogram", True)),
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        regexes = ", ".join(map(repr, self.include_regex)) or "none"
        count = len(self.tensor_names)
        tensors = "1 tensor" if count == 1 else f"{count} tensors"
        return f"<TrialCollection {self.name!r}: {tensors}, regexes: {regexes}>"

    def _repr_html_(self) -> str:
        return collections_html({self.name: self})


def collection_name(collection: object) -> str:
    """Return the name of a collection, given by name or as an object.

    Args:
        collection: The name, or an object with a name: a `TrialCollection`, a hook's `Collection`.

    Raises:
        TypeError: If it is neither.
    """
    name = collection if isinstance(collection, str) else getattr(collection, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"Invalid argument type for collection {collection.__class__}")
    return name


def collection_members(
    files: Sequence[CollectionsFile], collection: str, names: Collection[str], matcher: NameMatcher
) -> set[str]:
    """Return the tensors that belong to a collection in any worker's file."""
    found: set[str] = set()
    for file in files or (None,):
        found |= members(file, collection, names, matcher)
    return found


def merged_collections(
    files: Sequence[CollectionsFile], names: Collection[str], matcher: NameMatcher
) -> dict[str, TrialCollection]:
    """Return the collections of all workers by name."""
    merged: dict[str, TrialCollection] = {}
    for file in files:
        for name, entry in file.collections.items():
            collection = merged.setdefault(
                name,
                TrialCollection(
                    name,
                    reduction_config=StoredReductionConfig.of(entry.reduction_config),
                    save_config=StoredSaveConfig.of(entry.save_config),
                    save_histogram=entry.save_histogram,
                ),
            )
            collection.tensor_names.update(entry.tensor_names)
            patterns = dict.fromkeys((*collection.include_regex, *entry.include_regex))
            collection.include_regex = list(patterns)
    for collection in merged.values():
        collection.tensor_names |= _matched(files, collection.name, names, matcher)
    return merged


def built_in_collection(name: str, names: Collection[str], matcher: NameMatcher) -> TrialCollection:
    """Return a collection that no worker wrote: the built-in one, otherwise an empty one."""
    patterns = list(DEFAULT_REGEXES.get(name, ()))
    return TrialCollection(name, patterns, _matched((), name, names, matcher))


def _matched(
    files: Sequence[CollectionsFile], name: str, names: Iterable[str], matcher: NameMatcher
) -> set[str]:
    try:
        return collection_members(files, name, list(names), matcher)
    except PatternError as error:
        _logger.warning("the collection %r has only the tensors that it names: %s", name, error)
        return set()
