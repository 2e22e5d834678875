"""The collections that exist for PyTorch, and how they find modules.

A collection of one of the names `relu_input`, `relu_output`, `sigmoid_input`, `sigmoid_output`,
`tanh_input` and `tanh_output` takes the inputs or outputs of all modules of that type, whatever
they are called, besides what its user put into it. There is none unless its user makes it or asks
for it; where it is asked for, it may stay empty. Functions such as `F.relu` are no modules, and
their inputs and outputs are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from torch import nn

from hook_layer.collection_manager import CollectionManager, OnMistake
from hook_layer.collections import Collection as BaseCollection
from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.errors import HookConfigurationError

__all__ = ["DEFAULTS", "Collection", "included", "may_match", "resolve_modules"]

_TRIED_INDEXES: Final = 16

_LAYER_TYPES: Final[Mapping[str, tuple[type[nn.Module], ...]]] = {
    "relu": (nn.ReLU, nn.ReLU6),  # both are zero, without a gradient, for all negative inputs
    "sigmoid": (nn.Sigmoid,),
    "tanh": (nn.Tanh,),
}
_OF_LAYERS: Final = {
    f"{layer}_{kind}": (types, kind)
    for layer, types in _LAYER_TYPES.items()
    for kind in ("input", "output")
}
"""Names of the collections that take the layers of a type: which type, and what of them."""


class Collection(BaseCollection):
    """A collection that can take the inputs and outputs of modules; else as the base class."""

    _modules: tuple[tuple[nn.Module, bool, bool], ...] = ()
    _searched: tuple[int, int] = (0, 0)

    def add_module_tensors(
        self, module: nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Add the inputs, outputs or both of a module that is (part of) a registered one."""
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(f"module={module!r} must be a torch.nn.Module")
        self._modules = (*self._modules, (module, inputs, outputs))

    def resolve_modules(self, names: Mapping[nn.Module, str]) -> None:
        """Turn the modules that were added into regular expressions.

        Raises:
            HookConfigurationError: A module was not registered with the hook.
        """
        unknown = []
        for module, inputs, outputs in self._modules:
            if module not in names:
                unknown.append((module, inputs, outputs))
                continue
            for wanted, kind in ((inputs, "input"), (outputs, "output")):
                if wanted:
                    self._include_tensors_of(names[module], kind)
        self._modules = tuple(unknown)
        if unknown:
            raise HookConfigurationError(
                f"collection {self.name} has the module {unknown[0][0]!r}, which was not "
                "registered; call hook.register_module() with it or with a module around it"
            )

    def include_layers(self, names: Mapping[nn.Module, str]) -> None:
        """Take the layers of the type that the collection is named after, if it is.

        Args:
            names: Names of the modules that were registered; only ever more of them.
        """
        searched = id(names), len(names)
        if self.name not in _OF_LAYERS or searched == self._searched:
            return
        self._searched = searched
        types, kind = _OF_LAYERS[self.name]
        for name in sorted({name for module, name in names.items() if isinstance(module, types)}):
            self._include_tensors_of(name, kind)

    def _include_tensors_of(self, module_name: str, kind: str) -> None:
        pattern = f"^{re.escape(module_name)}_{kind}_"
        if pattern not in self.include_regex:
            self.include(pattern)


DEFAULTS: Final = FrameworkDefaults(
    built_in={
        CollectionKeys.DEFAULT: (),
        CollectionKeys.ALL: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: ("[Ll]oss_(?!input).*output",),
    },
    always_saved=(CollectionKeys.LOSSES,),
    collection_type=Collection,
)
"""The collections of PyTorch's hook."""


def included(manager: CollectionManager) -> list[BaseCollection]:
    """Return the collections that are saved at some time, due or not."""
    everything = CollectionKeys.ALL in manager.include
    named = manager.collections.items()
    return [collection for name, collection in named if everything or name in manager.include]


def resolve_modules(
    manager: CollectionManager,
    names: Mapping[nn.Module, str],
    on_mistake: OnMistake | None = None,
) -> None:
    """Turn the modules that were added to collections, or have their type, into expressions.

    Args:
        manager: The collections.
        names: Names of the modules that were registered.
        on_mistake: Is told of collections with other modules, which may be registered later; None:
            the first one is raised.

    Raises:
        HookConfigurationError: A module was not registered with the hook.
    """
    for name in _OF_LAYERS.keys() & manager.include - manager.built_in:
        manager.create_collection(name)
        manager.built_in |= {name}  # a model need not have such layers
    for collection in manager.collections.values():
        if isinstance(collection, Collection):
            collection.include_layers(names)
            try:
                collection.resolve_modules(names)
            except HookConfigurationError as error:
                if on_mistake is None:
                    raise
                on_mistake(error)


def may_match(collections: Iterable[BaseCollection], module_name: str) -> bool:
    """Tell whether any input or output of a module may be in one of these collections."""
    indexes = range(_TRIED_INDEXES)
    names = [f"{module_name}_{kind}_{i}" for kind in ("input", "output") for i in indexes]
    return any(collection.matches(name) for name in names for collection in collections)
