"""The collections that exist for PyTorch, and how they find modules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from torch import nn

from hook_layer.collection_manager import CollectionManager
from hook_layer.collections import Collection as BaseCollection
from hook_layer.collections import CollectionKeys
from hook_layer.errors import HookConfigurationError
from hook_layer.reductions import ReductionConfig
from hook_layer.save_config import SaveConfig

__all__ = ["Collection", "included", "make_manager", "may_match", "resolve_modules"]

_BUILT_IN: Final[dict[str, list[str]]] = {
    CollectionKeys.DEFAULT: [],
    CollectionKeys.ALL: [],
    CollectionKeys.WEIGHTS: ["^(?!gradient).*weight"],
    CollectionKeys.BIASES: ["^(?!gradient).*bias"],
    CollectionKeys.GRADIENTS: ["^gradient"],
    CollectionKeys.LOSSES: ["[Ll]oss_(?!input).*output"],
}
_ALWAYS_SAVED: Final = (CollectionKeys.LOSSES,)
_TRIED_INDEXES: Final = 16


class Collection(BaseCollection):
    """A collection that can take the inputs and outputs of modules; else as the base class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules: list[tuple[nn.Module, bool, bool]] = []

    def add_module_tensors(
        self, module: nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Add the inputs, outputs or both of a module that is (part of) a registered one."""
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(f"module={module!r} must be a torch.nn.Module")
        self._modules.append((module, inputs, outputs))

    def resolve_modules(self, names: Mapping[nn.Module, str]) -> None:
        """Turn the modules that were added into regular expressions.

        Raises:
            HookConfigurationError: A module was not registered with the hook.
        """
        while self._modules:
            module, inputs, outputs = self._modules[0]
            if module not in names:
                raise HookConfigurationError(
                    f"collection {self.name} has the module {module!r}, which was not registered; "
                    "call hook.register_module() with it or with a module around it"
                )
            for wanted, kind in ((inputs, "input"), (outputs, "output")):
                if wanted:
                    self.include(f"^{re.escape(names[module])}_{kind}_")
            del self._modules[0]


def make_manager(
    *,
    reduction_config: ReductionConfig | None,
    save_config: object,
    include_regex: str | Iterable[str] | None,
    include_collections: str | Iterable[str] | None,
    save_all: bool,
) -> CollectionManager:
    """Return PyTorch's collections, configured by the arguments of the hook.

    Raises:
        HookConfigurationError: An argument is of the wrong type, or no regular expression.
    """
    if reduction_config is not None and not isinstance(reduction_config, ReductionConfig):
        raise HookConfigurationError(
            f"reduction_config={reduction_config!r} must be a ReductionConfig"
        )
    collections: dict[str, BaseCollection] = {n: Collection(n, r) for n, r in _BUILT_IN.items()}
    include = {*_as_list(include_collections), *_ALWAYS_SAVED}
    if include_regex is not None:
        collections[CollectionKeys.DEFAULT].include(_as_list(include_regex))
        include.add(CollectionKeys.DEFAULT)
    if save_all:
        collections[CollectionKeys.ALL].include(".*")
        include.add(CollectionKeys.ALL)
    return CollectionManager(
        collections=collections,
        include=include,
        save_config=SaveConfig.parse(save_config),
        reduction_config=reduction_config or ReductionConfig(save_raw_tensor=True),
        built_in=frozenset(_BUILT_IN),
        collection_type=Collection,
    )


def included(manager: CollectionManager) -> list[BaseCollection]:
    """Return the collections that are saved at some time, due or not."""
    everything = CollectionKeys.ALL in manager.include
    named = manager.collections.items()
    return [collection for name, collection in named if everything or name in manager.include]


def resolve_modules(manager: CollectionManager, names: Mapping[nn.Module, str]) -> None:
    """Turn the modules that were added to collections into regular expressions.

    Raises:
        HookConfigurationError: A module was not registered with the hook.
    """
    for collection in manager.collections.values():
        if isinstance(collection, Collection):
            collection.resolve_modules(names)


def may_match(collections: Iterable[BaseCollection], module_name: str) -> bool:
    """Tell whether any input or output of a module may be in one of these collections."""
    indexes = range(_TRIED_INDEXES)
    names = [f"{module_name}_{kind}_{i}" for kind in ("input", "output") for i in indexes]
    return any(collection.matches(name) for name in names for collection in collections)


def _as_list(value: str | Iterable[Any] | None) -> list[str]:
    """Return a string, a list of strings, or nested lists of them, as one flat list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    return [name for item in value for name in _as_list(item)]
