"""Layers in the order in which they are called, and which of them get gradients.

Shape legend: R = rows of weights or gradients, one for each (tensor, worker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.evaluation.initial_weights import as_initialised
from rule_runtime.evaluation.linear_layers import may_be

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["are_cut_off", "count_later"]

_OUTPUT: Final = "_output_0"
_OF_GRADIENTS: Final = "gradient/"
_BIAS: Final = ".bias"


def are_cut_off(
    step: StepView,
    weights: TensorRows,
    absent: npt.NDArray[np.bool_],
    judged: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] are cut off from the loss, where few lack their gradients.

    All that do, if the first layer that is called is among them; else those of layers that are
    called ahead of others with gradients, of which no weight has one, and one looks as it was
    initialised.

    Args:
        step: The step.
        weights: The weights [R].
        absent: Which of them lack their gradients [R].
        judged: Which of them, of one worker, should have one [R].
    """
    layers = _layers(step, weights, judged)
    if layers and absent[layers[0]].all():
        return np.ones(len(weights), np.bool_)
    found, untouched = np.zeros(len(weights), np.bool_), as_initialised(weights)
    are_gone = [bool(absent[rows].all()) for rows in layers]
    for at, rows in enumerate(layers):
        found[rows] |= are_gone[at] and not all(are_gone[at:]) and untouched[rows].any()
    return found


def count_later(step: StepView, gradients: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which gradients [R] are zero as of a part of the model whose loss does not count yet.

    That of an adversary, say, is multiplied by 0 at first. Then the layer that is called last has
    gradients of zero throughout, its bias as well, which dead units ahead of it would not do; and
    so have those called before it, up to the first one that has others.

    Args:
        step: The step; the outputs of its modules tell the order of calls.
        gradients: The gradients [R].
    """
    is_zero = gradients.column("l2") == 0
    later = np.zeros(len(gradients), np.bool_)
    if not is_zero.any():
        return later
    workers = np.array(gradients.workers)
    for worker in set(gradients.workers):
        layers = _layers(step, gradients, workers == worker)
        for rows in reversed(layers):
            if not is_zero[rows].all():
                break
            has_bias = any(gradients.names[row].endswith(_BIAS) for row in rows)
            if not later[workers == worker].any() and not has_bias:
                break
            later[rows] = True
    return later


def _layers(step: StepView, rows: TensorRows, chosen: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Return the chosen rows [R], of one worker, of each layer with any, in the order of calls."""
    at = np.flatnonzero(chosen)
    if not len(at):
        return []
    worker = rows.workers[at[0]]
    outputs = step.tensors(regex=(f"{_OUTPUT}$",))
    pairs = zip(outputs.names, outputs.workers, strict=True)
    owned: dict[str, list[int]] = {
        name.removesuffix(_OUTPUT): [] for name, of in pairs if of == worker
    }
    for row in at.tolist():
        owner = rows.names[row].removeprefix(_OF_GRADIENTS).rpartition(".")[0]
        # A module `x` may be called beside `my_x`: the longest name is that of the weight.
        module = next((module for module in may_be(owner) if module in owned), None)
        if module is not None:
            owned[module].append(row)
    return [layer for layer in owned.values() if layer]
