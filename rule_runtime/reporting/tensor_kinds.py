"""Classifies tensors as losses, gradients or weights, by collection and name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.reductions import split_reduction_name
from hook_layer.storage.base import Store
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.name_pattern import PatternError
from rule_runtime.trial.trial_collections import (
    TrialCollection,
    collection_members,
    merged_collections,
)

__all__ = ["TensorGroup", "TensorKinds"]

_logger: Final = logging.getLogger(__name__)

GRADIENT: Final = "gradient/"
_MAX_WORKERS: Final = 16
_MAX_GROUPS: Final = 64
_LEARNING_RATE: Final = re.compile(r"(^|[/_.])(lr|learning_rate|eta)([/_.]?\d*)$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class TensorGroup:
    """The tensors in a file's statistics and their kinds.

    Attributes:
        names: The tensors [R].
        rows: Their rows in the file's statistics [R].
        scalars: Positions among `names` of losses, metrics and other scalars, by kind.
        gradients: Positions of the gradients.
        weights: Positions of the weights.
        learning_rates: Positions of learning rates.
    """

    names: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    scalars: Mapping[str, Sequence[int]]
    gradients: npt.NDArray[np.intp]
    weights: npt.NDArray[np.intp]
    learning_rates: Sequence[int]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The position of each tensor."""
        return {name: at for at, name in enumerate(self.names)}

    @cached_property
    def gradient_names(self) -> tuple[str, ...]:
        """Names of the gradients."""
        return tuple(self.names[at] for at in self.gradients)

    @cached_property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(self.names[at] for at in self.weights)

    @cached_property
    def pairs(self) -> tuple[tuple[str, ...], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Names of the weights that have a gradient; positions of both among their kinds."""
        places = {name: at for at, name in enumerate(self.gradient_names)}
        found = [
            (name, at, gradient)
            for at, name in enumerate(self.weight_names)
            if (gradient := places.get(GRADIENT + name)) is not None
        ]
        names, weights, gradients = zip(*found, strict=True) if found else ((), (), ())
        return names, np.array(weights, np.intp), np.array(gradients, np.intp)


class TensorKinds:
    """Classifies the tensors of a run.

    Attributes:
        reader: The reader of its collections.
    """

    def __init__(self, store: Store) -> None:
        self.reader = CollectionReader(store)
        self._groups: dict[tuple[str, ...], TensorGroup] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reread the collections of the first workers: running workers may have added tensors.

        Raises:
            StorageError: If the storage fails, except for a missing object.
        """
        workers = self.reader.workers()[:_MAX_WORKERS]
        self._files = self.reader.load_all(workers, again=True)
        self._groups.clear()

    def group(self, names: tuple[str, ...]) -> TensorGroup:
        """Return the kinds of a file's tensors; files with the same tensors share the result."""
        known = self._groups.get(names)
        if known is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._groups.clear()
            known = self._groups[names] = self._grouped(names)
        return known

    def collections(self, names: Iterable[str]) -> Mapping[str, TrialCollection]:
        """Return the collections of all workers by name."""
        return merged_collections(self._files, list(names), self.reader.matcher)

    def _grouped(self, stored: tuple[str, ...]) -> TensorGroup:
        rows = [at for at, name in enumerate(stored) if split_reduction_name(name) is None]
        names = tuple(stored[at] for at in rows)
        gradients = self._members("gradients", names) | {
            name for name in names if name.startswith(GRADIENT)
        }
        weights = self._members("weights", names) - gradients
        scalars = {
            kind: [at for at, name in enumerate(names) if name in members and name not in gradients]
            for kind, members in (
                ("losses", self._members("losses", names)),
                ("metrics", self._members("metrics", names)),
                ("scalars", self._members("scalars", names) | _named_scalars(names)),
            )
        }
        taken = {*scalars["losses"], *scalars["metrics"]}
        scalars["scalars"] = [at for at in scalars["scalars"] if at not in taken]
        return TensorGroup(
            names=names,
            rows=np.array(rows, np.intp),
            scalars=scalars,
            gradients=_places(names, gradients),
            weights=_places(names, weights),
            learning_rates=[at for at, name in enumerate(names) if _LEARNING_RATE.search(name)],
        )

    def _members(self, collection: str, names: Sequence[str]) -> set[str]:
        try:
            return collection_members(self._files, collection, names, self.reader.matcher)
        except PatternError as error:
            _logger.warning("the collection %s is not known: %s", collection, error)
            return set()


def _named_scalars(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("scalar/")}


def _places(names: Sequence[str], members: set[str]) -> npt.NDArray[np.intp]:
    return np.array([at for at, name in enumerate(names) if name in members], np.intp)
