"""What tanh and sigmoid of an untrained model returned, where no module tells of it.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.evaluation.linear_layers import LinearLayer, linear_layers
from rule_runtime.evaluation.other_uses import OtherUses
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["bounded_signals", "slopes"]

_RECURRENT: Final = ".weight_hh"
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_END: Final = 0.99
_LARGE: Final = 5.0


def slopes(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the mean slope of what gave each row [R], as a share of the largest.

    It is 1 - h^2 where tanh returns h, and 4 h (1 - h) where a sigmoid does, to which rows without
    negative elements are taken to belong.
    """
    mean, std = rows.column("mean"), rows.column("std")
    square = mean**2 + std**2
    return np.where(rows.column("min") >= 0, 4 * (mean - square), 1 - square)


def bounded_signals(step: StepView, rows: TensorRows) -> dict[tuple[str, str], list[int]]:
    """Return the rows of what tanh or sigmoid returned, by the layer that they are of and worker.

    Such are the outputs of a recurrent layer, if they lie between -1 and 1; and what goes into a
    linear layer, if no module made it, it reaches both ends of tanh or of a sigmoid (of which it
    has none exactly: that is a mask), and a linear layer has as many outputs, of which the root
    mean square is 5 or more.

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R].
    """
    weights = step.tensors(regex=(re.escape(_RECURRENT),)).names
    owners = {name.rpartition(_RECURRENT)[0] for name in weights}
    found: dict[tuple[str, str], list[int]] = {}
    low, high = rows.column("min"), rows.column("max")
    for at in np.flatnonzero((low >= -1) & (high <= 1)).tolist():
        layer, is_output, _ = rows.names[at].rpartition("_output_")
        if is_output and any(owner == layer or owner.endswith(f"_{layer}") for owner in owners):
            found.setdefault((layer, rows.workers[at]), []).append(at)
    layers = list(linear_layers(step, rows))
    for at in _of_functions(step, rows, layers):
        found.setdefault((rows.names[at].rpartition("_input_")[0], rows.workers[at]), []).append(at)
    return found


def _of_functions(step: StepView, rows: TensorRows, layers: list[LinearLayer]) -> list[int]:
    """Return the rows that go into linear layers, and look like what functions saturated."""
    low, high, size = (rows.column(name) for name in ("min", "max", "size"))
    is_tanh = (low >= -1) & (low <= -_END) & (high >= _END) & (high <= 1)
    is_sigmoid = (low >= 0) & (low <= 1 - _END) & (high >= _END) & (high <= 1)
    is_sigmoid &= (low > 0) | (high < 1)
    modules = {(layer.module, layer.worker) for layer in layers}
    places = [name.rpartition("_input_")[0] for name in rows.names]
    taken = [
        at
        for at in np.flatnonzero(is_tanh | is_sigmoid).tolist()
        if (places[at], rows.workers[at]) in modules
    ]
    if not taken:
        return []
    prints = fingerprints([rows.column(name) for name in _COLUMNS]).tolist()
    uses = OtherUses(step, rows, layers, prints)
    made = {prints[at] for worker in step.workers for at in uses.made_by_functions(worker)}
    square = rows.column("mean") ** 2 + rows.column("std") ** 2
    sources = {
        (rows.workers[at], size[at])
        for at in np.flatnonzero(square >= _LARGE**2)
        if (rows.names[at].rpartition("_output_")[0], rows.workers[at]) in modules
    }
    return [at for at in taken if prints[at] in made and (rows.workers[at], size[at]) in sources]
