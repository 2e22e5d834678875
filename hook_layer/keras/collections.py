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
from itertools import compress
from typing import Any, Final

import keras

from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.configuration.layer_collections import LayerCollection
from hook_layer.errors import HookConfigurationError
from hook_layer.format.collections_file import LayerKind

__all__ = ["DEFAULTS", "Collection", "find_layers"]

_OWN_ACTIVATIONS: Final = {
    "ELU": "elu",
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "ReLU": "relu",
    "Softmax": "softmax",
}
"""Activations of layers without the argument `activation`, by class."""


class Collection(LayerCollection):
    """A collection that can take layers and variables; else as the base class."""

    layer_kind = "layer"

    def is_of(self, layer_type: str, layer: Any) -> bool:
        """Return whether a layer is one of a type; for its outputs, its activation may be it."""
        if layer_type == "relu" and isinstance(layer, keras.layers.ReLU):
            return True
        has_own_name = isinstance(layer, keras.layers.Activation) or self.name.endswith("_output")
        activation = getattr(layer, "activation", None)
        return has_own_name and getattr(activation, "__name__", "") == layer_type

    def include_tensors_of(self, layer_name: str, kind: str) -> None:
        """Take the inputs or the outputs of a layer."""
        self.include_once(rf"^{re.escape(layer_name)}/{kind}s(_\d+)?$")

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs, outputs or both of a layer.

        Raises:
            HookConfigurationError: It is no layer.
        """
        if not isinstance(layer, keras.layers.Layer):
            raise HookConfigurationError(f"layer={layer!r:.200} must be a keras.layers.Layer")
        for kind in compress(("input", "output"), (inputs, outputs)):
            self.include_tensors_of(layer.name, kind)

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
            self.include_once(f"/weights/(.*/)?{re.escape('/'.join(arg.path.split('/')[-2:]))}:0$")
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


def find_layers(manager: CollectionManager, layers: Mapping[str, Any]) -> None:
    """Let collections that are named after a type of layer find theirs, and record all types."""
    manager.layers.update({name: _kind(layer) for name, layer in layers.items()})
    names = {layer: name for name, layer in layers.items()}
    manager.fill_known()
    for collection in manager.collections.values():
        if isinstance(collection, Collection):
            collection.include_layers(names)


def _kind(layer: Any) -> LayerKind:
    """Return type and activation of a layer; the activation of a layer of the script is unknown."""
    name, activation = type(layer).__name__, ""
    if type(layer).__module__.startswith("keras."):
        activation = _OWN_ACTIVATIONS.get(name, "")
        if hasattr(layer, "activation"):
            activation = str(getattr(layer.activation or keras.activations.linear, "__name__", ""))
    return LayerKind(name, activation)


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
