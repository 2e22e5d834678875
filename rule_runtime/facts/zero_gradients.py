"""Gradients that are zero because of what their layers get, not because they vanish."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import compress

from rule_runtime.facts.layers import MATRIX, Layers
from rule_runtime.facts.parameters import Gradients
from rule_runtime.trial.step_view import StepView

__all__ = ["zero_by_construction"]


def zero_by_construction(step: StepView) -> dict[str, frozenset[str]]:
    """Return parameters whose gradient is zero because of what their layer gets, by worker.

    * The layer belongs to a part of its own, such as a head whose loss has the weight 0.
    * The layer was not called, or got no rows, as an expert without tokens.
    * The layer is recurrent and got one time step: the state before it is zero, and so is the
      gradient of the matrix of the state.
    """
    gradients, layers = step.fact(Gradients), step.fact(Layers)
    rows = list(zip(gradients.owners, gradients.rows.workers, gradients.rows.shapes, strict=True))
    learning = defaultdict[tuple[str, str], list[tuple[int, ...]]](list)
    for of, worker, shape in compress(rows, gradients.sizes > 0):
        learning[_layer(of), worker].append(_units_first(of, shape))
    found = {
        worker: set(layers.bypassed(worker, gradients.learning(worker))) for worker in step.workers
    }
    for of, worker, shape in compress(rows, gradients.sizes == 0):
        inputs = layers.shapes_at(of, worker)
        is_used = inputs is None or any(math.prod(given) for given in inputs)
        if inputs and is_used and len(shape or ()) == MATRIX:
            outputs = layers.shapes_at(of, worker, "output")
            beside = learning[_layer(of), worker]
            is_used = not _is_of_first_state(_units_first(of, shape), beside, inputs, outputs)
        if not is_used:
            found[worker].add(of)
    return {worker: frozenset(names) for worker, names in found.items()}


def _layer(parameter: str) -> str:
    return parameter.rpartition("/" if "/" in parameter else ".")[0]


def _units_first(parameter: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return a shape with the units first, as in PyTorch; Keras has them last."""
    return (shape or ())[:: -1 if "/" in parameter else 1]


def _is_of_first_state(
    matrix: tuple[int, ...],
    learning: Sequence[tuple[int, ...]],
    inputs: Sequence[tuple[int, ...]],
    outputs: Sequence[tuple[int, ...]] | None,
) -> bool:
    """Return whether a matrix [U, H] gets only the first state [..., H] of a recurrent layer.

    There are 1, 3 or 4 times as many units U as numbers in the state, and a learning matrix of as
    many units for the input. A layer with a gate has two such matrices as well, but not any of:

    * more units than outputs, or a state of another size than the input, where U > H;
    * two learning biases;
    * an output [B, H] without the time step of the input [B, 1, ...].

    All arguments are shapes; `learning` are those of the layer's parameters with a gradient.
    """
    (units, size), (given, *_), (returned, *_) = matrix, inputs, outputs or [()]
    are_of_input = (units, *given[-1:]) in learning
    is_narrow = size < units and (given[-1:] != (size,) or returned[-1:] == (size,))
    has_biases = learning.count((units,)) > 1
    is_last = len(given) > MATRIX and returned == (given[0], size)
    is_recurrent = units in (size, 3 * size, 4 * size) and are_of_input
    return is_recurrent and (is_narrow or has_biases or is_last) and _is_one_step(inputs)


def _is_one_step(inputs: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a recurrent layer or cell got one time step: [B, 1, F], [1, B, F] or [B, F].

    A cell that is called again has another input of the first one's shape.
    """
    first = inputs[0]
    return 1 in first[:-1] if len(first) > MATRIX else inputs.count(first) == 1
