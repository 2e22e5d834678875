"""The collections that exist for Keras, and how they find layers.

A collection of one of the names `relu_input`, `relu_output`, `sigmoid_input`, `sigmoid_output`,
`tanh_input` and `tanh_output` takes the inputs or outputs of all layers of that type, whatever they
are called: of `keras.layers.ReLU`, of `keras.layers.Activation("relu")`, and the outputs of layers
with the argument `activation="relu"` (what goes into that activation no layer gets). There is none
unless its user makes it or asks for it; where it is asked for, it may stay empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import keras

from hook_layer.collection_manager import CollectionManager
from hook_layer.collections import Collection as BaseCollection
from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.errors import HookConfigurationError

__all__ = ["DEFAULTS", "Collection", "find_layers"]

_KINDS: Final = ("relu", "sigmoid", "tanh")
_SIDES: Final = {"input": "inputs", "output": "outputs"}


class Collection(BaseCollection):
    """A collection that can take layers and variables; else as the base class."""

    _searched: tuple[str, ...] = ()

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs, outputs or both of a layer.

        Raises:
            HookConfigurationError: It is no layer.
        """
        if not isinstance(layer, keras.layers.Layer):
            raise HookConfigurationError(f"layer={layer!r:.200} must be a keras.layers.Layer")
        for wanted, side in ((inputs, "inputs"), (outputs, "outputs")):
            if wanted:
                self._include_side(layer.name, side)

    def add(self, arg: Any) -> None:
        """Add a variable, the outputs of a layer, a tensor by its name, or several of these.

        Raises:
            HookConfigurationError: It is nothing of that; a tensor has no name of its own.
        """
        if isinstance(arg, str):
            self.add_tensor_name(arg)
        elif isinstance(arg, keras.layers.Layer):
            self.add_keras_layer(arg)
        elif isinstance(arg, keras.Variable):
            self._include_once(f"/weights/(.*/)?{re.escape('/'.join(arg.path.split('/')[-2:]))}:0$")
        elif isinstance(arg, (list, tuple, set, frozenset)):
            for item in arg:
                self.add(item)
        else:
            raise HookConfigurationError(
                f"collection {self.name} cannot take {arg!r:.200}; add a Keras layer, a "
                "variable or the name of a tensor. Save a tensor with hook.save_tensor()."
            )

    def add_for_mode(self, arg: Any, mode: Any = None) -> None:  # noqa: ARG002
        """Same as `add`: the tensors have the same names in all modes."""
        self.add(arg)

    add_tensor = add_variable = add_for_mode

    def include_layers(self, layers: Mapping[str, Any]) -> None:
        """Take the layers of the type that the collection is named after, if it is."""
        kind, _, side = self.name.partition("_")
        names = tuple(layers)
        if kind not in _KINDS or side not in _SIDES or names == self._searched:
            return
        self._searched = names
        for name, layer in layers.items():
            if _is_of_kind(layer, kind) or (side == "output" and _activation(layer) == kind):
                self._include_side(name, _SIDES[side])

    def _include_side(self, layer_name: str, side: str) -> None:
        self._include_once(rf"^{re.escape(layer_name)}/{side}(_\d+)?$")

    def _include_once(self, pattern: str) -> None:
        if pattern not in self.include_regex:
            self.include(pattern)


def find_layers(manager: CollectionManager, layers: Mapping[str, Any]) -> None:
    """Let the collections that are named after a type of layer find theirs."""
    manager.fill_known()
    for collection in manager.collections.values():
        if isinstance(collection, Collection):
            collection.include_layers(layers)


def _is_of_kind(layer: Any, kind: str) -> bool:
    if isinstance(layer, keras.layers.Activation):
        return _activation(layer) == kind
    return kind == "relu" and isinstance(layer, keras.layers.ReLU)


def _activation(layer: Any) -> str:
    return str(getattr(getattr(layer, "activation", None), "__name__", ""))


_BIAS: Final = r"(.*/)?[^/]*bias[^/]*$"

DEFAULTS: Final = FrameworkDefaults(
    built_in={
        CollectionKeys.DEFAULT: (),
        CollectionKeys.ALL: (),
        CollectionKeys.WEIGHTS: (f"^[^/]+/weights/(?!{_BIAS})",),
        CollectionKeys.BIASES: (f"^[^/]+/weights/{_BIAS}",),
        CollectionKeys.GRADIENTS: ("^gradients?/",),
        CollectionKeys.LOSSES: ("^[^/]*loss$",),
        CollectionKeys.METRICS: (),
        CollectionKeys.INPUTS: (r"^inputs(_\d+)?$",),
        CollectionKeys.OUTPUTS: (r"^(labels|predictions)(_\d+)?$",),
        CollectionKeys.LAYERS: (r"^[^/]+/(inputs|outputs)(_\d+)?$",),
        CollectionKeys.OPTIMIZER_VARIABLES: (),
        CollectionKeys.SM_METRICS: (),
    },
    always_saved=(CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS),
    collection_type=Collection,
)
"""The collections of Keras's hook."""
