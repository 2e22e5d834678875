"""How steep the activations of untrained recurrent layers are: no module gets what goes into them.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["Slope", "recurrent_slopes"]

_HIDDEN: Final = ".weight_hh"
_WEIGHTS: Final = r"^(?!gradient/).*\.weight_(ih|hh)(_l[0-9]+)?(_reverse)?$"
_MATRIX: Final = 2
_GATED: Final = (3, 4)
"""How many times as many rows as columns the hidden weight of a GRU and of an LSTM has."""


class Slope(NamedTuple):
    """How steep an activation of a recurrent layer is, on average.

    Attributes:
        at: Row of an output of the layer.
        mean: Its mean slope, as a share of the largest.
    """

    at: int
    mean: float


def recurrent_slopes(step: StepView, rows: TensorRows) -> list[Slope]:
    """Return the slopes of the recurrent layers of a model that has learned nothing yet.

    Of a tanh that returned h the slope is 1 - h^2; the outputs of layers are taken for such if they
    lie between -1 and 1. What goes into the gates of a GRU or an LSTM nobody gets; but as long as
    weights are drawn at random, each by itself, its variance is the sum of the mean squares of
    inputs and of states, each times the mean square of their weights. Of sigmoids of normal numbers
    with variance s^2 the mean slope is 1 / sqrt(1 + pi s^2 / 8) of the largest, to 2 %: MacKay
    (1992), "The evidence framework applied to classification networks".

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R].
    """
    weights = step.tensors(regex=(_WEIGHTS,))
    layers = _layers(weights)
    found = []
    low, high = rows.column("min"), rows.column("max")
    square = rows.column("mean") ** 2 + rows.column("std") ** 2
    row_of = {pair: at for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))}
    for at in np.flatnonzero((low >= -1) & (high <= 1)).tolist():
        layer, _, number = rows.names[at].rpartition("_output_")
        owner = next((o for o in layers if o == layer or o.endswith(f"_{layer}")), None)
        if owner is None or not layer:
            continue
        found.append(Slope(at, float(1 - square[at])))
        given = row_of.get((f"{layer}_input_0", rows.workers[at]))
        if number == "0" and given is not None:
            variances = _of_gates(weights, owner, rows.workers[at], square[given], square[at])
            found += [Slope(at, 1 / math.sqrt(1 + math.pi * v / 8)) for v in variances]
    return found


def _layers(weights: TensorRows) -> list[str]:
    """Return the names of the recurrent layers, with that of the model."""
    return sorted({name.rpartition(_HIDDEN)[0] for name in weights.names if _HIDDEN in name})


def _of_gates(
    weights: TensorRows, layer: str, worker: str, of_inputs: float, of_states: float
) -> Iterator[float]:
    """Yield the variance of what goes into the gates of each part of a layer.

    Args:
        weights: All weights of recurrent layers [R].
        layer: Name of the layer.
        worker: The worker.
        of_inputs: Mean square of the inputs.
        of_states: Mean square of the outputs.
    """
    square = weights.column("mean") ** 2 + weights.column("std") ** 2
    row_of = {pair: at for at, pair in enumerate(zip(weights.names, weights.workers, strict=True))}
    for (name, of_worker), hidden in row_of.items():
        prefix, found, suffix = name.rpartition(_HIDDEN)
        given = row_of.get((f"{prefix}.weight_ih{suffix}", of_worker))
        if not found or prefix != layer or of_worker != worker or given is None:
            continue
        shapes = weights.shapes[hidden], weights.shapes[given]
        if any(shape is None or len(shape) != _MATRIX for shape in shapes):
            continue
        (num_rows, num_states), (_, num_inputs) = shapes  # type: ignore[misc]
        if num_rows // num_states in _GATED:
            is_first = suffix.removesuffix("_reverse") in {"", "_l0"}
            taken = num_inputs * (of_inputs if is_first else of_states)
            yield float(square[given] * taken + square[hidden] * num_states * of_states)
