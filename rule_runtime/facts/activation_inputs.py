"""Inputs of tanh and sigmoid, and slopes of activations in recurrent layers.

Shape legend: R = rows, S = inputs and outputs of modules, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.layers import Signals
from rule_runtime.numerics.row_memory import fingerprints
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "OF_OUTPUTS",
    "OF_RECURRENT_LAYERS",
    "SATURATING",
    "are_answers",
    "bounds_of",
    "recurrent_slopes",
]

SATURATING: Final = ("tanh", "sigmoid")
"""The activations that saturate; the hook fills the collections `{kind}_input` by type."""
OF_OUTPUTS: Final = (
    *saved_every(10, "module_io"),
    *saved_every(500, "tanh_output", "sigmoid_output"),
    *saved_every(10, "loss_inputs"),
)
"""Collections for a rule that uses outputs of activations."""
OF_RECURRENT_LAYERS: Final = (*saved_every(10, "module_io"), *saved_every(500, "weights"))
"""Collections for a rule that uses recurrent layers."""

_HIDDEN: Final = ".weight_hh"
_WEIGHTS: Final = r"^(?!gradient/).*\.weight_hh(_l[0-9]+)?(_reverse)?$"
_OUTPUTS: Final = r"_output(_[0-9]+|/[0-9]+)$"
_INPUT: Final = re.compile(r"_input(?=[_/][0-9]+$)")
_OF_LOSS: Final = r"[Ll]oss_input_0$"
_COMPARED: Final = ("size", "min", "max", "mean", "std", "l2")


def bounds_of(
    step: StepView, rows: TensorRows, limits: Mapping[str, tuple[float, float]]
) -> npt.NDArray[np.float64]:
    """Return the limits of each input; NaN if it is not an input of tanh or sigmoid [R, 2].

    The collection, otherwise the name, shows the activation. `tanh` and `sigmoid` are not saturated
    for inputs between the limits.
    """
    pairs = {kind: {*step.tensors(collections=(f"{kind}_input",)).pairs} for kind in SATURATING}
    found = np.full((len(rows), 2), np.nan)
    for at, pair in enumerate(rows.pairs):
        by_type = [kind for kind in SATURATING if pair in pairs[kind]]
        by_name = [kind for kind in SATURATING if kind in pair[0].casefold()]
        for kind in (by_type or by_name)[:1]:
            found[at] = limits[kind]
    return found


def are_answers(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return for which inputs of modules and functions the output goes into a loss [R]."""
    outputs, compared = step.tensors(regex=(_OUTPUTS,)), step.tensors(regex=(_OF_LOSS,))
    of_outputs, of_losses = (
        fingerprints([tensors.column(name) for name in _COMPARED])
        for tensors in (outputs, compared)
    )
    answers = {*outputs.select(np.isin(of_outputs, of_losses)).pairs}
    named = [(_INPUT.sub("_output", name), worker) for name, worker in rows.pairs]
    return np.array([pair in answers for pair in named], dtype=np.bool_)


def recurrent_slopes(step: StepView) -> npt.NDArray[np.float64]:
    """Return the mean slope of the activations of recurrent layers, relative to the largest [S].

    The step is the first of its mode. The slope is NaN for `Signals` that no recurrent layer
    returned. A tanh with the output h has the slope 1 - h^2. Outputs between -1 and 1 count as
    outputs of tanh: those of a GRU are, and those of an LSTM are smaller.
    """
    signals, weights = step.fact(Signals), step.tensors(regex=(_WEIGHTS,))
    rows = signals.rows
    slopes = 1 - rows.column("mean") ** 2 - rows.column("std") ** 2
    owners = {name.rpartition(_HIDDEN)[0] for name in weights.names}
    is_recurrent = [
        place.kind == "output"
        and any(o == place.module or o.endswith(f"_{place.module}") for o in owners)
        for place in signals.places
    ]
    is_tanh = (rows.column("min") >= -1) & (rows.column("max") <= 1)
    return np.where(is_tanh & np.array(is_recurrent, dtype=np.bool_), slopes, np.nan)
