"""Finds where gradients vanish on their way from the loss to the first layer.

Shape legend: G = gradients, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.layers import Layers
from rule_runtime.facts.parameters import Gradients
from rule_runtime.trial.step_view import StepView

__all__ = ["Vanished", "are_mostly_zero", "find_vanishing_layer", "zero_by_construction"]

_MATRIX: Final = 2


class Vanished(NamedTuple):
    """Where gradients vanish on their way from the loss.

    Attributes:
        at: Row of the first gradient, in backward order, from which on all have vanished [G].
        are_all: Whether all gradients have vanished, already in the loss.
    """

    at: int
    are_all: bool


def find_vanishing_layer(
    step: StepView, worker: str, is_gone: npt.NDArray[np.bool_]
) -> Vanished | None:
    """Return where the gradients of a worker vanish; None if unknown, or if the first has not.

    Precondition: some gradients have vanished, `is_gone` [G].
    """
    gradients = step.fact(Gradients)
    own = [of == worker for of in gradients.rows.workers] & ~gradients.is_cancelled
    if is_gone[own].all():
        names = gradients.rows.names
        return Vanished(min(np.flatnonzero(own).tolist(), key=names.__getitem__), are_all=True)
    rows = {gradients.owners[at]: at for at in np.flatnonzero(own).tolist() if gradients.owners[at]}
    found = None
    for layer in step.fact(Layers).in_order.get(worker, ()):
        ats = [rows[name] for name in sorted(layer & rows.keys())]
        if not is_gone[ats].all():
            break
        found = Vanished(ats[0], are_all=False) if ats else found
    return found


def are_mostly_zero(step: StepView) -> bool:
    """Return whether at least half of the saved gradients are zero."""
    sizes = step.fact(Gradients).sizes
    return len(sizes) > 0 and 2 * np.count_nonzero(sizes == 0) >= len(sizes)


def zero_by_construction(step: StepView) -> dict[str, frozenset[str]]:
    """Return parameters whose gradient is zero because of what their layer gets, by worker.

    * The layer belongs to a part of its own, such as a head whose loss has the weight 0.
    * The layer was not called, or got no rows, as an expert without tokens.
    * The layer is recurrent and got one time step: the state before it is zero. Then the matrix of
      the state has no gradient, and the matrix of the input, for the same units, has one.
    """
    gradients, layers = step.fact(Gradients), step.fact(Layers)
    rows = list(zip(gradients.owners, gradients.rows.workers, gradients.rows.shapes, strict=True))
    learning = {
        (_units(of, shape), worker) for of, worker, shape in compress(rows, gradients.sizes > 0)
    }
    found = {
        worker: set(layers.bypassed(worker, gradients.learning(worker))) for worker in step.workers
    }
    for of, worker, shape in compress(rows, gradients.sizes == 0):
        inputs, units = layers.inputs_of(of, worker), _units(of, shape)
        is_used = inputs is None or any(math.prod(given) for given in inputs)
        is_state = units is not None and (units, worker) in learning
        if not is_used or (is_state and (inputs is None or _is_one_step(inputs))):
            found[worker].add(of)
    return {worker: frozenset(names) for worker, names in found.items()}


def _units(parameter: str, shape: tuple[int, ...] | None) -> tuple[str, int] | None:
    """Return the layer and the number of outputs of a matrix; None for others.

    PyTorch has the outputs first, Keras last.
    """
    if shape is None or len(shape) != _MATRIX:
        return None
    layer, slash, _ = parameter.rpartition("/")
    return (layer, shape[-1]) if slash else (parameter.rpartition(".")[0], shape[0])


def _is_one_step(inputs: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a recurrent layer or cell got one time step: [B, 1, F], [1, B, F] or [B, F].

    A cell that is called again has another input of the first one's shape.
    """
    first = inputs[0]
    return 1 in first[:-1] if len(first) > _MATRIX else inputs.count(first) == 1
