"""Names of model inputs, and which of them a layer gets unchanged.

The input of a module is called `{module}_input_{number}`. A model is a module with parameters, its
own or those of submodules. In Keras, a model's input is `inputs`, and a layer's input
`{layer}/inputs`, followed by `_{number}` if there are several.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.losses import RELATIVE_ERROR
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "FIRST_INPUTS",
    "KERAS_INPUTS",
    "LAYER_INPUTS",
    "MODEL_INPUT",
    "OF_LAYERS",
    "are_given_to_layers",
    "is_normalised",
    "is_of_keras",
]

_OF_KERAS: Final = r"inputs(_[0-9]+)?$"
MODEL_INPUT: Final = rf"^([A-Z]\w*_input_[0-9]+$|{_OF_KERAS}|input_values$)"
"""Names of inputs of models and losses, and of the features of boosted trees."""
FIRST_INPUTS: Final = (r"_input_0$", f"^{_OF_KERAS}")
"""Names of first inputs of modules, and of all inputs of Keras models."""
_OUTPUTS: Final = r"_output_[0-9]+$"
OF_LAYERS: Final = rf"(_input_[0-9]+$|/{_OF_KERAS})"
"""Names of inputs of modules and of Keras's layers."""

# Every tenth step of the first hundred: at batches of 32 rows, more than 200 rows.
_AT_THE_BEGINNING: Final = {"save_interval": "10", "end_step": "101"}
KERAS_INPUTS: Final = CollectionConfig(
    "keras_inputs",
    {"save_raw_tensor": "True", "raw_max_elements": str(1 << 22), **_AT_THE_BEGINNING},
)
"""Collection of the Keras hook for a rule that needs input values."""
LAYER_INPUTS: Final = CollectionConfig(
    "layer_inputs", {"save_raw_tensor": "False", **_AT_THE_BEGINNING}
)
"""Collection of the Keras hook for a rule that needs the inputs of layers."""

_FLOATS: Final = ("float", "bfloat")
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_OF_MODULES: Final = frozenset(("weight", "bias", "gamma", "beta"))
"""Parameters after a layer's name and an underscore, if a framework numbers layers."""
_TABLE_OF_KERAS: Final = "embeddings:0"
_WEIGHTS_OF_KERAS: Final = "/weights/"
_NAME_OF_KERAS: Final = re.compile(_OF_KERAS)


def is_of_keras(name: str) -> bool:
    """Return whether an input is a Keras model's."""
    return _NAME_OF_KERAS.match(name) is not None


def are_given_to_layers(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which of the `FIRST_INPUTS` are real numbers that a layer with a matrix gets [R].

    Keras converts integers to real numbers, so they count there. If no layer inputs were saved, all
    inputs of PyTorch models count.
    """
    weights = step.tensors(collections=("weights",))
    matrices = _owners_of_matrices(weights)
    layers = step.tensors(regex=(OF_LAYERS,))
    owners = [_owner(name) for name in layers.names]
    has_matrix = np.array([_is_one_of(owner, matrices) for owner in owners], dtype=bool)
    part = _only_part(owners, weights.names)
    is_model = {owner: owner == part or _is_model(owner, weights.names) for owner in owners}
    of_layers, of_models = _statistics(layers), _statistics(rows)
    found = np.zeros(len(rows), np.bool_)
    for at, (name, worker) in enumerate(rows.pairs):
        of_keras, model = is_of_keras(name), _owner(name)
        is_real = (rows.dtypes[at] or "").startswith(_FLOATS) and is_model.get(model, False)
        is_real &= model == part or any(f"{owner}_".startswith(f"{model}_") for owner in matrices)
        if len(rows.shapes[at] or ()) <= 1 or not (of_keras or is_real):
            continue
        own = np.array([of == worker for of in layers.workers], dtype=bool)
        is_same = _are_same(of_layers, of_models[:, at])
        is_known = any(own[row] and not is_model[owner] for row, owner in enumerate(owners))
        is_taken = bool((is_same & own & has_matrix).any())
        found[at] = is_taken or not (is_known or of_keras)
    return found


def is_normalised(step: StepView, rows: TensorRows, at: int, largest: float) -> bool:
    """Return whether the size of an input has no effect, as a normalisation layer follows.

    Each layer with a matrix that gets the input gives its output unchanged to a layer with a vector
    and without a matrix, which returns numbers with a root mean square of at most `largest`. This
    is known of modules of PyTorch whose inputs and outputs were saved.
    """
    layers, outputs = (
        found.select([of == rows.workers[at] for of in found.workers])
        for found in (step.tensors(regex=(regex,)) for regex in (OF_LAYERS, _OUTPUTS))
    )
    weights = step.tensors(collections=("weights",))
    matrices = _owners_of_matrices(weights)
    shapes = zip(weights.names, weights.shapes, strict=True)
    vectors = [_module(name) for name, shape in shapes if shape is not None and len(shape) == 1]
    owners, of_layers = [_owner(name) for name in layers.names], _statistics(layers)

    def takers(given: npt.NDArray[np.float64]) -> Iterator[str]:
        """Yield the modules with an input that has these statistics."""
        return compress(owners, _are_same(of_layers, given))

    first = [o for o in takers(_statistics(rows)[:, at]) if _is_one_of(o, matrices)]
    of_outputs = _statistics(outputs)
    size = np.hypot(outputs.column("mean"), outputs.column("std"))
    small = {_owner(outputs.names[row]) for row in np.flatnonzero(size <= largest).tolist()}
    return bool(first) and all(
        any(
            _is_one_of(taker, vectors) and not _is_one_of(taker, matrices) and taker in small
            for output, name in enumerate(outputs.names)
            if _owner(name) == layer
            for taker in takers(of_outputs[:, output])
        )
        for layer in first
    )


def _statistics(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the statistics by which tensors are compared [len(_COLUMNS), R]."""
    return np.array([rows.column(name) for name in _COLUMNS])


def _are_same(
    statistics: npt.NDArray[np.float64], given: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return which tensors have the given statistics [R]."""
    is_close = np.isclose(statistics, given[:, None], rtol=RELATIVE_ERROR, atol=0.0)
    return np.asarray(is_close.all(axis=0))


def _owner(name: str) -> str:
    """Return the module or layer of an input or output."""
    of_module, number = re.subn(r"_(input|output)_[0-9]+$", "", name)
    return of_module if number else name.rpartition("/")[0]


def _owners_of_matrices(weights: TensorRows) -> list[str]:
    """Return the owners of matrices without embeddings; a single weight needs no scale."""
    sizes = weights.column("size").tolist()
    return [
        name.partition(_WEIGHTS_OF_KERAS)[0] if _WEIGHTS_OF_KERAS in name else _module(name)
        for name, shape, size in zip(weights.names, weights.shapes, sizes, strict=True)
        if (shape is None or len(shape) > 1) and size > 1
        if not name.endswith(_TABLE_OF_KERAS)
    ]


def _module(weight: str) -> str:
    return weight.rpartition(".")[0] or weight.rpartition("_")[0]


def _is_one_of(layer: str, owners: list[str]) -> bool:
    """Return whether a layer is an owner; layer names lack the model's name as prefix."""
    return any(owner == layer or owner.endswith(f"_{layer}") for owner in owners)


def _is_model(name: str, weights: Sequence[str]) -> bool:
    """Return whether a module is a model, not a single layer such as MXNet's `dense0`."""
    below = {one.removeprefix(f"{name}_") for one in weights if one.startswith(f"{name}_")}
    return bool(below - _OF_MODULES) or bool(below and not name[-1:].isdigit())


def _only_part(owners: Sequence[str], weights: Sequence[str]) -> str:
    """Return the part of a model that a script calls instead of the model; "" if none or several.

    An example is `self.net` of a LightningModule. It must have layers of its own, and no other part
    may be called, so its input is no output of another one.
    """
    parts = {owner.partition(".")[0] for owner in owners if not owner.endswith("Loss")}
    part = next(iter(parts)) if len(parts) == 1 else ""
    layers = re.compile(rf"^\w+_{re.escape(part)}\.\w+\.")
    return part if part and any(map(layers.match, weights)) else ""
