"""Names of layers and their tensors in all frameworks, and what the layers are.

| fact | PyTorch | Keras |
|---|---|---|
| input of a layer | `fc_input_0` | `fc/inputs`, or `fc/inputs_0` if there are several |
| output of a layer | `fc_output_0` | `fc/outputs`, after the activation inside the layer |
| weight, bias | `Net_fc.weight`, `Net_fc.bias` | `fc/weights/fc/kernel:0`, `fc/weights/fc/bias:0` |
| shape of a weight | outputs, inputs, kernel | kernel, inputs, outputs |
| activation of a layer | a module of its own | an argument of the layer |

`rule_runtime.facts.gradient_names` has the names of gradients.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from hook_layer.format.collections_file import LayerKind
from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from rule_runtime.trial.step_view import StepView

__all__ = [
    "LINEAR",
    "SIGNALS",
    "LayerKinds",
    "Place",
    "WeightShape",
    "is_activation",
    "owners_of",
    "place_of",
]

SIGNALS: Final = KNOWN_COLLECTIONS["module_io"]
"""Regular expression of the inputs and outputs of layers and losses."""
_ANY_ACTIVATION: Final = "activation"
"""Type of Keras's layers that are an activation alone."""
LINEAR: Final = "linear"
"""Name of no activation."""
_SIGNAL: Final = re.compile(
    r"(?P<module>.+)(_(?P<kind>input|output)_(?P<number>[0-9]+)"
    r"|/(?P<of_keras>input|output)s(_(?P<of_several>[0-9]+))?)$"
)
_WEIGHTS_OF_KERAS: Final = "/weights/"
_WEIGHT: Final = ".weight"
_KERNEL: Final = re.compile(r"(?P<layer>[^/]+)/weights/[^/]+/kernel:0")
"""The kernel of a layer that has one; recurrent layers and attention have them in parts."""


class Place(NamedTuple):
    """The module, and input or output, of a signal."""

    module: str
    kind: str
    number: int


class WeightShape(NamedTuple):
    """Shape of the weight of a linear layer or a convolution.

    Attributes:
        outputs: Number of outputs, or channels.
        inputs: Number of inputs, or channels.
        kernel: Shape of the kernel; empty for a matrix.
        axes: Axes of the channels that its input and output may have.
    """

    outputs: int
    inputs: int
    kernel: tuple[int, ...]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, parameter: str, shape: tuple[int, ...]) -> WeightShape | None:
        """Return the shape of a weight by its name; None if it is no such weight."""
        if len(shape) < 2:  # noqa: PLR2004 - a matrix
            return None
        if parameter.endswith(_WEIGHT):
            outputs, inputs, *kernel = shape
            return cls(outputs, inputs, tuple(kernel), (1,) if kernel else (-1,))
        if _KERNEL.fullmatch(parameter):
            *kernel, inputs, outputs = shape
            return cls(outputs, inputs, tuple(kernel), (-1, 1) if kernel else (-1,))
        return None


class LayerKinds:
    """What the layers are, as the hook recorded it once per run.

    PyTorch's linear layers and convolutions have no activation inside. Keras's may have one.
    """

    def __init__(self, step: StepView) -> None:
        files = {worker: step.collections_file(worker) for worker in step.workers}
        self._of = {worker: file.layers for worker, file in files.items() if file is not None}

    @property
    def are_known(self) -> bool:
        """Whether the hook of any worker recorded the layers."""
        return any(self._of.values())

    def of(self, layer: str, worker: str) -> LayerKind:
        """Return what a layer is."""
        return self._of.get(worker, {}).get(layer) or LayerKind("")

    def with_activation_inside(self, activations: Collection[str]) -> list[tuple[str, str]]:
        """Return the layers that do more than one of these activations, with it, sorted."""
        kinds = {layer: kind for layers in self._of.values() for layer, kind in layers.items()}
        return sorted(
            (layer, kind.activation)
            for layer, kind in kinds.items()
            if kind.activation in activations and not is_activation(kind)
        )

    def activation_in(self, layer: str, parameter: str, worker: str) -> str:
        """Return the activation that the output of a layer with a weight went through.

        It is "" if unknown.
        """
        known = self.of(layer, worker).activation
        return known or ("" if _WEIGHTS_OF_KERAS in parameter else LINEAR)


def is_activation(kind: LayerKind) -> bool:
    """Return whether a layer is an activation alone."""
    own = kind.activation.replace("_", "")
    return own not in ("", LINEAR) and kind.type.casefold() in (own, _ANY_ACTIVATION)


def place_of(name: str) -> Place:
    """Return the module of an input or output, which of them it is, and its number."""
    found = _SIGNAL.match(name)
    if found is None:
        return Place(name, "", 0)
    kind, number = found["kind"] or found["of_keras"], found["number"] or found["of_several"]
    return Place(found["module"], kind, int(number or 0))


def owners_of(parameter: str) -> list[str]:
    """Return the layers that a parameter may belong to by its name, the likeliest first.

    PyTorch's parameters are `{model}_{module}.weight`, where both may have a `_`. The longest name
    is the likeliest, because both `x` and `my_x` may exist. Modules of a further model are called
    `{model}_{module}` themselves.
    """
    layer, is_of_keras, _ = parameter.partition(_WEIGHTS_OF_KERAS)
    if is_of_keras:
        return [layer]
    owner = parameter.rpartition(".")[0]
    starts = [0, *(at + 1 for at, letter in enumerate(owner) if letter == "_")]
    return [owner[start:] for start in starts]
