"""Manages the collections of a hook: which are due, and what is stored of each tensor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeAlias

from hook_layer.capture.reductions import Reduction, ReductionConfig
from hook_layer.configuration.collection_set import CollectionSet
from hook_layer.configuration.collections import (
    OF_TRAINING,
    SCALARS,
    Collection,
    CollectionKeys,
)
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode, save_config_changes
from hook_layer.errors import (
    HookConfigurationError,
    InvalidCollectionConfigurationError,
    close_match,
)
from hook_layer.format.collections_file import CollectionEntry, CollectionsFile, LayerKind
from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from hook_layer.format.modes import WITHOUT_TRAINING, ModeKeys

__all__ = ["CollectionManager", "OnMistake", "SummaryPlan", "TensorPlan"]

logger = logging.getLogger("stepwatch")

OnMistake: TypeAlias = Callable[[HookConfigurationError], None]

_AS_THEY_ARE: Final = ReductionConfig(save_raw_tensor=True)
_OF_PARAMETERS: Final = (
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.OPTIMIZER_VARIABLES,
)
_WITHOUT_HISTOGRAMS: Final = SCALARS | {CollectionKeys.TENSORFLOW_SUMMARIES}


@dataclass(frozen=True)
class SummaryPlan:
    """Plan of what TensorBoard shows of one tensor in a step.

    Attributes:
        scalar: Whether it is shown as a number, if it is one.
        histograms: Names of the collections that show its histogram.
    """

    scalar: bool = False
    histograms: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorPlan:
    """Plan of what is stored of one tensor in a step.

    Attributes:
        raw: Whether its value is stored.
        raw_max_elements: Limit of the elements in its stored first rows; None: no limit.
        is_of_parameter: Whether it is a parameter, or belongs to one, like a gradient.
        reductions: The stored reductions.
        shape: Whether its shape is stored.
        summaries: What TensorBoard shows of it; None: nothing.
    """

    raw: bool
    raw_max_elements: int | None = None
    is_of_parameter: bool = False
    reductions: tuple[Reduction, ...] = ()
    shape: bool = False
    summaries: SummaryPlan | None = None

    @cached_property
    def is_statistics(self) -> bool:
        """Whether only statistics and the shape are stored."""
        return not (self.raw or self.reductions or self.summaries)

    @cached_property
    def is_whole_parameter(self) -> bool:
        """Whether only the whole value of a parameter or gradient is stored."""
        is_whole = self.raw and self.raw_max_elements is None and self.is_of_parameter
        return is_whole and not (self.reductions or self.summaries)


@dataclass(eq=False)
class CollectionManager(CollectionSet):
    """Manages the collections of a hook: which are saved, and what is stored of each tensor.

    Attributes:
        collections: By name.
        include: Names of the saved collections.
        built_in: Names of collections that may stay empty.
        save_config: Default for when collections are saved.
        reduction_config: Default for what is stored.
        collection_type: Class of the collections that `get` creates.
        has_summaries: Whether TensorBoard files are written.
        num_workers: Number of workers that write.
        statistics_only: Whether neither values nor reductions are stored, nor shown by TensorBoard.
        layers: What the layers of the model are, by name.
        gradient_stops: Parameters without a gradient, by what stops it.
        script_lines: Line of the script of each layer, loss and optimizer, by kind and name.
        version: Increases whenever changed collections are detected.
        counted: Containers whose number of elements shows a change of when anything is saved.
    """

    collections: dict[str, Collection] = field(default_factory=dict)
    include: set[str] = field(default_factory=set)
    save_config: SaveConfig = field(default_factory=SaveConfig)
    reduction_config: ReductionConfig = field(
        default_factory=lambda: ReductionConfig(save_raw_tensor=True)
    )
    built_in: frozenset[str] = frozenset()
    collection_type: type[Collection] = Collection
    has_summaries: bool = False
    num_workers: int = 1
    statistics_only: bool = False
    layers: dict[str, LayerKind] = field(default_factory=dict)
    gradient_stops: dict[str, tuple[str, ...]] = field(default_factory=dict)
    script_lines: dict[str, dict[str, str]] = field(default_factory=dict)
    version: int = 0
    counted: tuple[Sized, ...] = ()
    _prepared_for: list[object] | None = None
    _saved: list[Collection] = field(default_factory=list)
    _configured_for: tuple[int, ...] | None = None
    _save_configs: dict[ModeKeys, tuple[SaveConfigMode, ...]] = field(default_factory=dict)
    _schedules: dict[ModeKeys, list[tuple[Collection, SaveConfigMode | None]]] = field(
        default_factory=dict
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, and count a change of when anything is saved."""
        object.__setattr__(self, name, value)
        save_config_changes.number += name in {"collections", "include", "save_config"}

    def fill_known(self) -> None:
        """Give the known collections their tensors if they are saved and otherwise empty."""
        for name in (self.include | self.collections.keys()) & KNOWN_COLLECTIONS.keys():
            if self._is_empty(self.get(name)):
                self.collections[name].include(KNOWN_COLLECTIONS[name])

    def due(
        self,
        mode: ModeKeys,
        mode_step: int,
        on_mistake: OnMistake | None = None,
        resolve: Callable[[], None] | None = None,
    ) -> tuple[Collection, ...]:
        """Return the collections that are saved in this step.

        Args:
            mode: Its mode.
            mode_step: Its number in this mode.
            on_mistake: Called for each empty included collection after a change; empty collections
                are skipped. None: raise an error for the first one.
            resolve: Called after a change, to find the tensors of the collections.

        Raises:
            HookConfigurationError: An included collection is empty.
        """
        if self._prepared_for != self._state():
            if resolve is not None:
                resolve()
            self._prepare(on_mistake)
        if self._configured_for != self.configuration():
            self._note_save_configs()
        saved = self._schedules.get(mode)
        if saved is None:
            skip = OF_TRAINING if mode in WITHOUT_TRAINING else ()
            saved = [(c, self._own_config(c, mode)) for c in self._saved if c.name not in skip]
            self._schedules[mode] = saved
        default = self.save_config.mode_save_configs[mode] or SaveConfigMode()
        is_due = default.should_save_step(mode_step)
        return tuple(
            [c for c, own in saved if (is_due if own is None else own.should_save_step(mode_step))]
        )

    def resolve_again(self) -> None:
        """Find the tensors of the collections before the next saved step: there are others."""
        self._prepared_for = None

    def is_unsaved(self, mode: ModeKeys, mode_step: int) -> bool:
        """Return True if no collection can be saved in a step; otherwise `due` decides.

        It costs a few attribute reads, and does not detect new patterns or tensor names.
        """
        default = self.save_config.mode_save_configs[mode]
        if default is None or default.should_save_step(mode_step):
            return False
        if self._configured_for != self.configuration():
            return False
        return not any(c.should_save_step(mode_step) for c in self._save_configs[mode])

    def next_saved_step(self, mode: ModeKeys, mode_step: int) -> float:
        """Return the next step of a mode that may be saved, unless the configuration changes."""
        default = self.save_config.mode_save_configs[mode]
        if default is None or self._configured_for != self.configuration():
            return mode_step + 1
        configs = (default, *self._save_configs[mode])
        return min(config.next_step(mode_step) for config in configs)

    @property
    def differs_by_mode(self) -> bool:
        """Whether a collection is saved at other steps in one mode than in another."""
        saved = (self.collections[name] for name in self.include & self.collections.keys())
        return any(len({self._save_config_of(c, mode) for mode in ModeKeys}) > 1 for c in saved)

    def plan(
        self, name: str, due: tuple[Collection, ...], *, member_of: Sequence[str] = ()
    ) -> TensorPlan | None:
        """Return what is stored of tensor `name` while `due` are saved; None for nothing.

        The name becomes part of every saved collection that it matches, due or not.

        Args:
            name: Name of the tensor.
            due: Result of `due()` for this step.
            member_of: Collections that contain the tensor, regardless of its name.
        """
        for collection in self._saved:
            if collection.name in member_of or collection.matches(name):
                collection.tensor_names.add(name)
        plan = self._plan_for([c for c in due if c.has_tensor_name(name)])
        if plan is not None and plan.raw:
            plan = replace(plan, is_of_parameter=self._is_of_parameter(name))
        return plan

    def plan_in(self, collections: Sequence[Collection]) -> TensorPlan:
        """Return what is stored of a tensor of these collections, whenever they are due."""
        return self._plan_for(collections) or TensorPlan(raw=not self.statistics_only)

    def note(self, name: str) -> None:
        """Add a tensor to every saved collection that its name matches."""
        for collection in self._saved:
            if collection.matches(name):
                collection.tensor_names.add(name)

    def note_line(self, kind: str, name: str, line: str) -> None:
        """Note the first known line of the script of a layer, loss or optimizer."""
        if line:
            self.script_lines.setdefault(kind, {}).setdefault(name, line)

    @property
    def extent(self) -> tuple[object, ...]:
        """What shows that the file has changed: it must be written again if one part differs."""
        names = map(attrgetter("tensor_names"), self.collections.values())
        sizes = len(self.collections), len(self.include), len(self.layers)
        in_all = sum(map(len, names)), sum(map(len, self.script_lines.values()))
        return (*sizes, *in_all, *self.gradient_stops.items())

    def to_file(self) -> CollectionsFile:
        """Return the collections in the form of the file beside the tensors."""
        return CollectionsFile(
            collections={name: self._entry(c) for name, c in self.collections.items()},
            num_workers=self.num_workers,
            saved=sorted(self.include),
            layers=dict(self.layers),
            gradient_stops=self.gradient_stops,
            script_lines=self.script_lines,
        )

    def _is_of_parameter(self, name: str) -> bool:
        known = (self.collections.get(key) for key in _OF_PARAMETERS)
        return any(c is not None and (c.has_tensor_name(name) or c.matches(name)) for c in known)

    def _state(self) -> list[object]:
        """Return what changes with the collections, except when they are saved."""
        return [len(self.include), *[c.state() for c in self.collections.values()]]

    def _prepare(self, on_mistake: OnMistake | None) -> None:
        self.fill_known()
        self._create_unknown()
        for mistake in self._mistakes():
            if on_mistake is None:
                raise mistake
            on_mistake(mistake)
        everything = CollectionKeys.ALL in self.include
        self._saved = [
            collection
            for name, collection in self.collections.items()
            if (everything or name in self.include) and not self._is_empty(collection)
        ]
        self._schedules.clear()
        self._prepared_for = self._state()
        self.version += 1

    def _create_unknown(self) -> None:
        """Create the included collections that do not exist; these may stay empty."""
        valid = self.built_in | KNOWN_COLLECTIONS.keys() | self.collections.keys()
        for name in sorted(self.include - self.collections.keys()):
            close = close_match(name, valid)
            logger.warning(
                "include_collections has %r, which is unknown, so it is created without tensors."
                "%s Fill it with hook.get_collection(%r).include('relu').",
                name,
                f" Did you mean {close!r}?" if close else "",
                name,
            )
            self.create_collection(name)
            self.built_in |= {name}

    def configuration(self) -> tuple[int, ...]:
        """Return numbers that change with any setting of when anything is saved."""
        return save_config_changes.number, *map(len, self.counted)

    def _note_save_configs(self) -> None:
        """Cache the save configurations of included collections, for `is_unsaved`."""
        self._schedules.clear()
        everything = CollectionKeys.ALL in self.include
        own = [
            c.save_config.mode_save_configs
            for name, c in self.collections.items()
            if (everything or name in self.include) and c.save_config is not None
        ]
        for mode in ModeKeys:
            configs = {of_mode[mode] for of_mode in own}
            self._save_configs[mode] = tuple(c for c in configs if c is not None)
        all_configs = (
            c for each in (self.save_config.mode_save_configs, *own) for c in each.values()
        )
        steps = {id(c.save_steps): c.save_steps for c in all_configs if c is not None}
        self.counted = (self.include, self.collections, *steps.values())
        self._configured_for = self.configuration()

    def _mistakes(self) -> Iterator[HookConfigurationError]:
        valid = self.built_in | KNOWN_COLLECTIONS.keys()
        for name in sorted(self.include):
            if self._is_empty(self.collections[name]):
                yield InvalidCollectionConfigurationError(name, valid)

    def _is_empty(self, collection: Collection) -> bool:
        """Return whether a collection cannot contain tensors; a built-in one is never empty."""
        is_filled = collection.include_regex or collection.tensor_names
        return not is_filled and collection.name not in self.built_in

    # A collection stores only its user's settings; defaults are looked up. So it may be changed
    # later, and belong to several hooks with different defaults.

    def _save_config_of(self, collection: Collection, mode: ModeKeys) -> SaveConfigMode:
        """Return when a collection is saved in a mode: its own setting, or else the hook's."""
        own = self._own_config(collection, mode)
        return own or self.save_config.mode_save_configs[mode] or SaveConfigMode()

    def _own_config(self, collection: Collection, mode: ModeKeys) -> SaveConfigMode | None:
        config = collection.save_config
        return None if config is None else config.mode_save_configs[mode]

    def _reduction_config_of(self, collection: Collection) -> ReductionConfig:
        """Return what is stored of a collection's tensors; scalars are stored unchanged."""
        if collection.name in SCALARS:
            return _AS_THEY_ARE
        return collection.reduction_config or self.reduction_config

    def _plan_for(self, collections: Sequence[Collection]) -> TensorPlan | None:
        """Return the combined plan of the collections that contain a tensor; None without any."""
        if not collections:
            return None
        if self.statistics_only:
            return TensorPlan(raw=False)
        configs = [self._reduction_config_of(collection) for collection in collections]
        reductions: dict[Reduction, None] = {}
        for config in configs:
            reductions.update(dict.fromkeys(config.requested()))
        limits = [config.raw_max_elements for config in configs if config.save_raw_tensor]
        return TensorPlan(
            raw=bool(limits),
            raw_max_elements=_largest(limits),
            reductions=tuple(reductions),
            shape=any(config.save_shape for config in configs),
            summaries=_summaries_for(collections) if self.has_summaries else None,
        )

    def _entry(self, collection: Collection) -> CollectionEntry:
        """Return a collection in the form of the file, with defaults filled in."""
        configs = {mode: self._save_config_of(collection, mode) for mode in ModeKeys}
        return replace(
            CollectionEntry(**collection.to_json_dict()),
            reduction_config=self._reduction_config_of(collection).to_file_dict(),
            save_config=SaveConfig(configs).to_json_dict(),
            save_histogram=_has_histograms(collection),
        )


def _largest(limits: Sequence[int | None]) -> int | None:
    """Return the largest limit; None if one is unlimited, or there are none."""
    numbers = [limit for limit in limits if limit is not None]
    return max(numbers) if numbers and len(numbers) == len(limits) else None


def _has_histograms(collection: Collection) -> bool:
    return collection.save_histogram and collection.name not in _WITHOUT_HISTOGRAMS


def _summaries_for(collections: Sequence[Collection]) -> SummaryPlan | None:
    """Return the combined plan of the collections that contain a tensor; None for nothing."""
    names = [collection.name for collection in collections if _has_histograms(collection)]
    # `all` contains everything, so it is only shown if no other collection is.
    histograms = tuple(name for name in names if name != CollectionKeys.ALL) or tuple(names)
    scalar = any(collection.name in SCALARS for collection in collections)
    return SummaryPlan(scalar, histograms) if scalar or histograms else None
