"""Inputs of models: what they are called, and which of them a layer gets as they are.

The input of a module is called `{module}_input_{number}`, and a model is a module with parameters
of its own or below it. Keras calls what a model gets `inputs`, and what a layer gets
`{layer}/inputs`, with `_{number}` behind it if there are several.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "FIRST_INPUTS",
    "KERAS_INPUTS",
    "LAYER_INPUTS",
    "MODEL_INPUT",
    "OF_CALLS",
    "OF_LAYERS",
    "are_given_to_layers",
    "are_on_a_line",
    "is_of_keras",
]

_OF_KERAS: Final = r"inputs(_[0-9]+)?$"
MODEL_INPUT: Final = rf"^([A-Z]\w*_input_[0-9]+$|{_OF_KERAS}|input_values$)"
"""Names of inputs of models and losses, and of the features that boosted trees are judged by."""
FIRST_INPUTS: Final = (r"_input_0$", f"^{_OF_KERAS}")
"""Names of first inputs of modules, and of all that Keras's models have."""
OF_CALLS: Final = r"_input_[0-9]+$"
"""Names of inputs of modules."""
OF_LAYERS: Final = rf"(_input_[0-9]+$|/{_OF_KERAS})"
"""Names of inputs of modules and of Keras's layers."""

# Every tenth step of the first hundred: batches of 32 rows must show that 200 rows are told.
_AT_THE_BEGINNING: Final = {"save_interval": "10", "end_step": "101"}
KERAS_INPUTS: Final = CollectionConfig(
    "keras_inputs",
    {
        "save_raw_tensor": "True",
        "raw_max_elements": str(1 << 22),
        **_AT_THE_BEGINNING,
    },
)
"""What the hook for Keras is to save for a rule that looks at the values of inputs."""
LAYER_INPUTS: Final = CollectionConfig(
    "layer_inputs",
    {"save_raw_tensor": "False", **_AT_THE_BEGINNING},
)
"""What it is to save for a rule that looks at which layers get the inputs as they are."""

_FLOATS: Final = ("float", "bfloat")
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_OF_PIECES: Final = ("size", "min", "max", "l2")
_CLOSE: Final = 1e-6
_MATRIX: Final = 2
_OF_MODULES: Final = frozenset(("weight", "bias", "gamma", "beta"))
"""Parameters behind the name of a layer and an underscore, in frameworks that number layers."""
_TABLE_OF_KERAS: Final = "embeddings:0"
_WEIGHTS_OF_KERAS: Final = "/weights/"
_NAME_OF_KERAS: Final = re.compile(_OF_KERAS)


def is_of_keras(name: str) -> bool:
    """Return whether an input is one that Keras gives a model."""
    return _NAME_OF_KERAS.match(name) is not None


def are_given_to_layers(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which inputs are real numbers that a model gets, and does not scale by itself [R].

    Args:
        step: The step.
        rows: Inputs named as `FIRST_INPUTS` [R].
    """
    return _of_models(step, rows) | _of_keras(step, rows)


def are_on_a_line(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which inputs are one column, of a model with one weight, and a bias at most [R].

    Args:
        step: The step.
        rows: Inputs named as `FIRST_INPUTS` [R].
    """
    weights = step.tensors(collections=("weights",))
    sizes = weights.column("size").tolist()
    found = np.zeros(len(rows), np.bool_)
    for at, (name, shape) in enumerate(zip(rows.names, rows.shapes, strict=True)):
        model = name.removesuffix("_input_0")
        own = [x for of, x in zip(weights.names, sizes, strict=True) if _is_of(of, model)]
        found[at] = set(own) == {1} and (shape or ())[-1:] == (1,)
    return found


def _of_keras(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which inputs [R] a layer of Keras with a matrix gets as they are.

    Whole numbers, as of pixels, are made real ones before it; what an Embedding gets stays what
    it is, whatever its type.
    """
    found = np.zeros(len(rows), np.bool_)
    places = [at for at, name in enumerate(rows.names) if is_of_keras(name)]
    if not places:
        return found
    weights = step.tensors(collections=("weights",))
    sizes = weights.column("size").tolist()
    owners = {
        name.partition(_WEIGHTS_OF_KERAS)[0]
        for name, shape, size in zip(weights.names, weights.shapes, sizes, strict=True)
        # One weight, beside which there are no others, needs no scale.
        if (shape is None or len(shape) >= _MATRIX) and size > 1
        if not name.endswith(_TABLE_OF_KERAS)
    }
    given = step.tensors(regex=(f"/{_OF_KERAS}",))
    of_layers = np.array([given.column(name) for name in _COLUMNS])
    may_be = np.array([name.rpartition("/")[0] in owners for name in given.names], dtype=bool)
    of_models = np.array([rows.column(name) for name in _COLUMNS])
    for at in places:
        is_own = may_be & np.array([of == rows.workers[at] for of in given.workers], dtype=bool)
        same = np.isclose(of_layers, of_models[:, at, None], rtol=_CLOSE, atol=0.0).all(axis=0)
        found[at] = len(rows.shapes[at] or ()) >= _MATRIX and bool((same & is_own).any())
    return found


def _is_of(weight: str, model: str) -> bool:
    """Return whether a weight is of a model, not of a layer alone as MXNet's `dense0_weight`."""
    below = weight.removeprefix(f"{model}_")
    return below != weight and (below not in _OF_MODULES or model[-1:] not in "0123456789")


def _of_models(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which inputs [R] are real numbers that a registered model gets, and does not scale."""
    weights = step.tensors(collections=("weights",))
    names = [name.removesuffix("_input_0") for name in rows.names]
    is_model = {n: any(_is_of(weight, n) for weight in weights.names) for n in names}
    owners = {
        name.rpartition(".")[0]
        for name, shape in zip(weights.names, weights.shapes, strict=True)
        if shape is None or len(shape) >= _MATRIX
    }
    has_matrix = {n: any(owner.endswith(f"_{n}") for owner in owners) for n in names}
    # A parameter of the model itself has no module in its name.
    own = {n for n in names if is_model[n] and "" in owners}
    prints = fingerprints([rows.column(column) for column in _COLUMNS]).tolist()
    pairs = list(zip(prints, rows.workers, strict=True))
    taken = {pair for n, pair in zip(names, pairs, strict=True) if has_matrix[n] or n in own}
    knows_layers = {w for n, w in zip(names, rows.workers, strict=True) if not is_model[n]}
    shapes, dtypes = rows.shapes, rows.dtypes
    return np.array(
        [
            is_model[name]
            and (dtypes[at] or "").startswith(_FLOATS)
            and len(shapes[at] or ()) >= _MATRIX
            and (
                pairs[at] in taken
                or rows.workers[at] not in knows_layers
                or _is_taken_in_pieces(step, rows, at, has_matrix)
            )
            for at, name in enumerate(names)
        ],
        dtype=bool,
    )


def _is_taken_in_pieces(
    step: StepView, rows: TensorRows, at: int, has_matrix: Mapping[str, bool]
) -> bool:
    """Return whether all calls of one layer together get an input: a step of a series each."""
    pieces = step.tensors(regex=(OF_CALLS,))
    calls: dict[str, list[int]] = {}
    for piece, (name, worker) in enumerate(zip(pieces.names, pieces.workers, strict=True)):
        owner = name.rpartition("_input_")[0]
        if worker == rows.workers[at] and has_matrix.get(owner):
            calls.setdefault(owner, []).append(piece)
    size, low, high, norm = (rows.column(name)[at] for name in _OF_PIECES)
    for of_layer in calls.values():
        # Beside the input a cell gets its state, of another shape.
        shapes = [pieces.shapes[piece] for piece in of_layer]
        same = [piece for piece, shape in zip(of_layer, shapes, strict=True) if shape == shapes[0]]
        sizes, lows, highs, norms = (pieces.column(name)[same] for name in _OF_PIECES)
        is_whole = sizes.sum() == size and lows.min() == low and highs.max() == high
        if is_whole and np.isclose(np.sqrt((norms**2).sum()), norm, rtol=_CLOSE, atol=0.0):
            return True
    return False
