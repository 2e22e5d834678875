"""The collections that exist for PyTorch, and how they find modules.

`relu_output`, `tanh_input` and the like take the outputs or inputs of all modules of that type, and
of functions such as `F.relu`, as `{module}/relu_output/{i}` of the module that calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from torch import nn

from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection as BaseCollection
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.configuration.layer_collections import LayerCollection
from hook_layer.errors import HookConfigurationError
from hook_layer.format.collections_file import LayerKind

__all__ = ["DEFAULTS", "Collection", "included", "is_layer", "layer_kinds", "of_functions"]

_LAYER_TYPES: Final[Mapping[str, tuple[type[nn.Module], ...]]] = {
    "relu": (nn.ReLU, nn.ReLU6),  # both are zero, without a gradient, for all negative inputs
    "sigmoid": (nn.Sigmoid,),
    "tanh": (nn.Tanh,),
}
_ACTIVATIONS: Final[Mapping[type[nn.Module], str]] = {
    nn.Hardsigmoid: "hard_sigmoid",
    nn.Hardtanh: "hard_tanh",
    nn.Linear: "linear",
    nn.LogSoftmax: "log_softmax",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Sigmoid: "sigmoid",
    nn.Softmax: "softmax",
    nn.Softplus: "softplus",
    nn.Softsign: "softsign",
    nn.Tanh: "tanh",
}
"""Activation of what modules return, by their exact class."""
_DROPOUT: Final = "Dropout"
_SIDES: Final = ("input", "output")


class Collection(LayerCollection):
    """A collection that can take the inputs and outputs of modules; else as the base class."""

    layer_kind = "module"

    def is_of(self, layer_type: str, layer: nn.Module) -> bool:
        """Return whether a module is one of a type."""
        return is_layer(layer_type, layer)

    def add_module_tensors(
        self, module: nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Add the inputs, outputs or both of a module that is (part of) a registered one."""
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(f"module={module!r} must be a torch.nn.Module")
        self.add_layer(module, inputs=inputs, outputs=outputs)


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


def is_layer(layer_type: str, module: nn.Module) -> bool:
    """Return whether a module is one of a type: `relu`, `sigmoid` or `tanh`."""
    return isinstance(module, _LAYER_TYPES[layer_type])


def layer_kinds(names: Mapping[nn.Module, str]) -> dict[str, LayerKind]:
    """Return the usual layers, activations and dropout among modules, by name."""
    kinds = {name: _kind(module) for module, name in names.items()}
    return {name: of for name, of in kinds.items() if of.activation or _DROPOUT in of.type}


def _kind(module: nn.Module) -> LayerKind:
    activation = _ACTIVATIONS.get(type(module), "")
    if isinstance(module, nn.Hardtanh) and (module.min_val, module.max_val) != (-1, 1):
        activation = "relu6" if type(module) is nn.ReLU6 else ""
    return LayerKind(type(module).__name__, activation)


@lru_cache
def of_functions(names: tuple[object, ...]) -> frozenset[object]:
    """Return those of the names of collections that take what functions get or return."""
    return frozenset(names) & {f"{kind}_{side}" for kind in _LAYER_TYPES for side in _SIDES}
