"""What the layers and variables of a model are called.

Names are those of the original, which are TensorFlow 2's: a variable is named after its layer, and
once more with the way to it, `dense/weights/dense/kernel:0`. Layers are those that a model lists
(`model.layers`), and of models within it theirs. Where two layers have one name, the tensors of the
latter have its number behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import keras

__all__ = ["ModelNames", "gradient_name", "variable_tail"]

_GRADIENT: Final = "gradients/{}Grad"


class ModelNames:
    """Names of what a model consists of, as it is now: an unbuilt one has no variables yet.

    Attributes:
        layers: Layers by name, without the model itself.
        weights: Variables by name.
        gradients: Names of the gradients of trainable variables, by the id of the variable.
    """

    def __init__(self, model: Any) -> None:
        self.layers: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        self.gradients: dict[int, str] = {}
        self._gradient_names: set[str] = set()
        for layer in _layers_of(model, set()):
            self.layers[_unique(layer.name, self.layers)] = layer
        seen: set[int] = set()
        for name, layer in [*self.layers.items(), (model.name, model)]:
            is_model = isinstance(layer, keras.Model)
            if not is_model or layer is model:
                self._add_variables(name, layer, seen)
        self._num_weights = len(model.weights)

    def is_of(self, model: Any) -> bool:
        """Return whether the model has the same number of variables as it had."""
        return len(model.weights) == self._num_weights

    def _add_variables(self, layer_name: str, layer: Any, seen: set[int]) -> None:
        for variable in layer.weights:
            if id(variable) in seen:
                continue
            seen.add(id(variable))
            tail = variable_tail(variable, layer.name)
            name = f"{layer_name}/weights/{tail}:0"
            if name in self.weights:
                tail = variable.path
                name = _unique(f"{layer_name}/weights/{tail}:0", self.weights)
            self.weights[name] = variable
            gradient = _unique(gradient_name(tail), self._gradient_names)
            self._gradient_names.add(gradient)
            self.gradients[id(variable)] = gradient


def variable_tail(variable: Any, layer_name: str | None = None) -> str:
    """Return the way to a variable from its layer on, e.g. `dense/kernel`.

    Args:
        variable: A variable of Keras, or of TensorFlow.
        layer_name: Name of the layer; None: the part before the variable's own name.
    """
    path = getattr(variable, "path", None)
    if path is None:
        return str(variable.name).removesuffix(":0")
    parts = path.split("/")
    if layer_name is None:
        return "/".join(parts[-2:])
    ways = [at for at, part in enumerate(parts[:-1]) if part == layer_name]
    return "/".join(parts[ways[-1] :]) if ways else f"{layer_name}/{parts[-1]}"


def gradient_name(tail: str) -> str:
    """Return the name of a variable's gradient, by the variable's `variable_tail`."""
    return _GRADIENT.format(tail)


def _layers_of(model: Any, seen: set[int]) -> Iterator[Any]:
    for layer in model.layers:
        if id(layer) in seen or isinstance(layer, keras.layers.InputLayer):
            continue
        seen.add(id(layer))
        yield layer
        if isinstance(layer, keras.Model):
            yield from _layers_of(layer, seen)


def _unique(name: str, taken: Any) -> str:
    number, found = 1, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found
