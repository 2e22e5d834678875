"""Which activations give outputs that a loss finds better than a constant prediction.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.layers import MODULE_IO
from rule_runtime.facts.losses import LOSS_INPUTS, Loss, Losses, LossKind, size_of_error
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["OF_OUTPUTS", "are_accurate"]

_EVERY_500: Final = {"save_interval": "500"}
OF_OUTPUTS: Final = (
    MODULE_IO,
    CollectionConfig("tanh_output", _EVERY_500),
    CollectionConfig("sigmoid_output", _EVERY_500),
    LOSS_INPUTS,
    CollectionConfig("losses", _EVERY_500),
)
"""What the hook saves for a rule that looks at outputs and losses."""

_OUTPUTS: Final = r"_(input_0|output_0)$|_output/[0-9]+$"
_INPUT: Final = re.compile(r"_input(?=[_/][0-9]+$)")
_STATISTICS: Final = ("size", "min", "max", "mean", "std", "l2")


def are_accurate(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which inputs of activations become outputs that are better than the baseline [R].

    The baseline is ln 2 for a binary cross entropy, and the variance of the targets, or its root,
    for losses of numbers. Of other losses nothing is known.

    Args:
        step: The step.
        rows: Inputs of modules and of functions [R].
    """
    losses = step.tensors(collections=("losses",))
    good = set()
    for at, loss in enumerate(finite_means(losses)):
        name, worker = losses.names[at], losses.workers[at]
        if loss < _baseline(step.fact(Losses).find(name, worker)):
            good.add((f"{name.rpartition('_output_')[0]}_input_0", worker))
    tensors = step.tensors(regex=(_OUTPUTS,)) if good else rows.select([])
    prints = fingerprints([tensors.column(name) for name in _STATISTICS])
    print_of = dict(zip(zip(tensors.names, tensors.workers, strict=True), prints, strict=True))
    compared = {(print_of[pair], pair[1]) for pair in good if pair in print_of}
    outputs = [(_INPUT.sub("_output", n), w) for n, w in zip(rows.names, rows.workers, strict=True)]
    return np.array([(print_of.get(pair), pair[1]) in compared for pair in outputs], dtype=bool)


def _baseline(loss: Loss) -> float:
    if loss.kind is LossKind.BINARY:
        return math.log(2)
    if loss.targets is None or not loss.kind.is_of_numbers:
        return math.nan
    return size_of_error(loss.kind, loss.name, loss.targets.std * loss.targets.std)
