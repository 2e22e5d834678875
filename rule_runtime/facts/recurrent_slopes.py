"""The mean slope of the activations in recurrent layers of an untrained model.

No module gets the inputs of these activations, so their slope follows from statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.layers import MODULE_IO, Signals

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["OF_RECURRENT_LAYERS", "Slope", "least_slope"]

OF_RECURRENT_LAYERS: Final = (MODULE_IO, CollectionConfig("weights", {"save_interval": "500"}))
"""What the hook saves for a rule that looks at recurrent layers."""

_HIDDEN: Final = ".weight_hh"
_WEIGHTS: Final = r"^(?!gradient/).*\.weight_(ih|hh)(_l[0-9]+)?(_reverse)?$"
_GATED: Final = (3, 4)
"""Rows per column of the hidden weight of a GRU and of an LSTM."""


class Slope(NamedTuple):
    """The smallest mean slope of an activation of a recurrent layer.

    Attributes:
        rows: Inputs and outputs of modules.
        at: Row of the layer's output.
        mean: Its mean slope, relative to the largest.
    """

    rows: TensorRows
    at: int
    mean: float


def least_slope(step: StepView) -> Slope | None:
    """Return the smallest mean slope of all recurrent layers; None without such layers.

    * A tanh that returned h has the slope 1 - h^2. Outputs between -1 and 1 are taken for such.
    * The input of a gate of a GRU or LSTM has, with random weights, the variance s^2 = the sum over
      inputs and states of mean square times mean square of the weights. The mean slope of a
      sigmoid of normal numbers is 1 / sqrt(1 + pi s^2 / 8) of the largest, to 2 % (MacKay, 1992).

    Args:
        step: The first step of its mode.
    """
    signals = step.fact(Signals)
    rows, weights = signals.rows, step.tensors(regex=(_WEIGHTS,))
    low, high = rows.column("min"), rows.column("max")
    square = rows.column("mean") ** 2 + rows.column("std") ** 2
    owners = sorted({name.rpartition(_HIDDEN)[0] for name in weights.names if _HIDDEN in name})
    found: list[tuple[float, str, int]] = []
    for at, place in enumerate(signals.places):
        name, module, worker = rows.names[at], place.module, rows.workers[at]
        owner = next((o for o in owners if o == module or o.endswith(f"_{module}")), None)
        if owner is None or place.kind != "output" or not -1 <= low[at] <= high[at] <= 1:
            continue
        found.append((float(1 - square[at]), name, at))
        into = signals.at(module, "input", worker)
        if place.number == 0 and into is not None:
            variances = _of_gates(weights, owner, worker, square[into], square[at])
            found += [(1 / math.sqrt(1 + math.pi * v / 8), name, at) for v in variances]
    return Slope(rows, min(found)[2], min(found)[0]) if found else None


def _of_gates(
    weights: TensorRows, layer: str, worker: str, of_inputs: float, of_states: float
) -> Iterator[float]:
    """Yield the variance of the inputs of the gates of each part of a layer.

    Args:
        weights: All weights of recurrent layers.
        layer: Name of the layer.
        worker: The worker.
        of_inputs: Mean square of the inputs.
        of_states: Mean square of the outputs.
    """
    square = weights.column("mean") ** 2 + weights.column("std") ** 2
    row_of = {pair: at for at, pair in enumerate(zip(weights.names, weights.workers, strict=True))}
    for (name, of), hidden in row_of.items():
        prefix, is_hidden, suffix = name.rpartition(_HIDDEN)
        given = row_of.get((f"{prefix}.weight_ih{suffix}", of))
        if not is_hidden or prefix != layer or of != worker or given is None:
            continue
        num_rows, num_states = weights.shapes[hidden] or (0, 1)
        _, num_inputs = weights.shapes[given] or (0, 0)
        if num_rows // num_states in _GATED:
            is_first = suffix.removesuffix("_reverse") in {"", "_l0"}
            taken = num_inputs * (of_inputs if is_first else of_states)
            yield float(square[given] * taken + square[hidden] * num_states * of_states)
