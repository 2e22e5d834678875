"""Collections of layers: by type, from the collection's name, and by explicit addition.

PyTorch and MXNet share this module. Layers are the framework's modules or blocks. Their tensors are
`<name>_input_<n>` and `<name>_output_<n>`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Any, ClassVar, Final

from hook_layer.configuration.collection_manager import CollectionManager, OnMistake
from hook_layer.configuration.collections import Collection
from hook_layer.errors import HookConfigurationError

__all__ = ["LayerCollection", "may_match", "resolve_layers"]

_TRIED_INDEXES: Final = 16

_OF_LAYERS: Final = {
    f"{layer}_{kind}": (layer, kind)
    for layer in ("relu", "sigmoid", "tanh")
    for kind in ("input", "output")
}
"""Names of collections with all layers of a type: the type, and inputs or outputs."""


class LayerCollection(Collection, ABC):
    """A collection that can also contain the inputs and outputs of layers."""

    layer_kind: ClassVar[str]
    """What the framework calls a layer, as in `hook.register_module`."""

    _searched: tuple[int, int] = (0, 0)
    _added: tuple[tuple[Any, bool, bool], ...] = ()

    @abstractmethod
    def is_of(self, layer_type: str, layer: Any) -> bool:
        """Return whether a layer is of a type."""

    def shown(self, layer: Any) -> str:
        """Return a layer as messages show it."""
        return repr(layer)

    def add_layer(self, layer: Any, *, inputs: bool, outputs: bool) -> None:
        """Add the inputs, outputs or both of a layer that is (part of) a registered one."""
        self._added = (*self._added, (layer, inputs, outputs))
        self.num_name_changes += 1

    def resolve(self, names: Mapping[Any, str]) -> None:
        """Include the tensors of the added layers.

        Raises:
            HookConfigurationError: A layer is not registered with the hook.
        """
        added, self._added = self._added, ()
        for layer, *wanted in added:
            if layer not in names:
                self._added = (*self._added, (layer, *wanted))
                continue
            for kind in compress(("input", "output"), wanted):
                self.include_tensors_of(names[layer], kind)
        if self._added:
            kind, shown = self.layer_kind, self.shown(self._added[0][0])
            raise HookConfigurationError(
                f"collection {self.name} has the {kind} {shown}, which is not registered; "
                f"pass it or a {kind} around it to hook.register_{kind}()"
            )

    def include_layers(self, names: Mapping[Any, str]) -> None:
        """Include the layers of the type in the collection's name, if it names one.

        Args:
            names: Names of the layers.
        """
        if self.name in _OF_LAYERS:
            layer_type, kind = _OF_LAYERS[self.name]
            found = {name for layer, name in names.items() if self.is_of(layer_type, layer)}
            for name in sorted(found):
                self.include_tensors_of(name, kind)

    def include_new_layers(self, names: Mapping[Any, str]) -> None:
        """Same as `include_layers`, unless there is no layer but those of the last call."""
        searched = id(names), len(names)
        if searched != self._searched:
            self._searched = searched
            self.include_layers(names)

    def include_tensors_of(self, layer_name: str, kind: str) -> None:
        """Take the inputs or the outputs of a layer."""
        self.include_once(f"^{re.escape(layer_name)}_{kind}_")

    def include_once(self, pattern: str) -> None:
        """Add a regular expression, unless it is there."""
        if pattern not in self.include_regex:
            self.include(pattern)


def resolve_layers(
    manager: CollectionManager,
    names: Mapping[Any, str],
    on_mistake: OnMistake | None = None,
) -> None:
    """Include layers by type, and layers that were added to collections.

    Args:
        manager: The collections.
        names: Names of the layers that were registered, losses too; only ever more of them.
        on_mistake: Called for each collection with other layers, which may be registered later;
            None: the first one is raised.

    Raises:
        HookConfigurationError: A layer is not registered with the hook.
    """
    manager.fill_known()
    for collection in manager.collections.values():
        if isinstance(collection, LayerCollection):
            collection.include_new_layers(names)
            try:
                collection.resolve(names)
            except HookConfigurationError as error:
                if on_mistake is None:
                    raise
                on_mistake(error)


def may_match(collections: Iterable[Collection], layer_name: str) -> bool:
    """Return whether one of these collections may contain an input or output of a layer."""
    indexes = range(_TRIED_INDEXES)
    names = [f"{layer_name}_{kind}_{i}" for kind in ("input", "output") for i in indexes]
    return any(collection.matches(name) for name in names for collection in collections)
