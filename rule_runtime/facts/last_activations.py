"""What the last activation of a model gets, and whether it can give what the loss wants.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ahead_of_softmax", "cuts_targets", "is_softmax", "squeezed"]

_OF_NUMBERS: Final = re.compile(r"^(MSE|L1|SmoothL1|Huber)Loss_input_0$")
_OF_MODELS: Final = re.compile(r"^[A-Z][A-Za-z0-9]*_output_0$")
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_CLOSE: Final = 1e-3
_EXACT: Final = 1e-4
_BEYOND: Final = 0.5
_MANY: Final = 1.25
_NEAR: Final = 0.02
_PEAKED: Final = 0.25
_ON_LINE: Final = 0.01
_SIGMOID_OF_1: Final = 1 / (1 + math.exp(-1))
_HALF: Final = 0.5


def is_softmax(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are what softmax gives: between 0 and 1, with mean 1 / classes.

    Args:
        rows: Any tensors [R].
    """
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    found = np.zeros(len(rows), dtype=bool)
    for at in np.flatnonzero((low >= 0) & (high <= 1 + _CLOSE) & (std > 0)):
        # Classes are the second dimension of (N, C, ...), and often the last one; some files do not
        # tell the shape.
        shape = rows.shapes[at]
        classes = {round(1 / mean[at])} if shape is None else {*shape[1:2], *shape[-1:]} - {1}
        found[at] = any(abs(mean[at] * size - 1) < _EXACT for size in classes)
    return found


def ahead_of_softmax(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] a ReLU gave to the softmax, or its logarithm, at the end of a model.

    They are never negative, and sometimes 0, and go into a module that has neither parts nor a
    weight, and returns probabilities or their logarithms, as the model does, or to the loss.

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R].
    """
    names, workers = rows.names, rows.workers
    prints = fingerprints([rows.column(name) for name in _COLUMNS])
    row_of = {pair: at for at, pair in enumerate(zip(names, workers, strict=True))}
    is_end = [bool(_OF_MODELS.match(n)) or n.lower().endswith("loss_input_0") for n in names]
    last = {(prints[at], workers[at]) for at in np.flatnonzero(is_end)}
    weights = {name.partition("_")[2] for name in step.tensors(collections=("weights",)).names}
    size, low, high = (rows.column(name) for name in ("size", "min", "max"))
    are_probabilities = is_softmax(rows)
    found = np.zeros(len(rows), dtype=bool)
    for at in np.flatnonzero((low == 0) & (high > 0)):
        module, is_input, _ = names[at].rpartition("_input_")
        out = row_of.get((f"{module}_output_0", workers[at]))
        if not is_input or out is None or size[out] != size[at] or f"{module}.weight" in weights:
            continue
        has_parts = _OF_MODELS.match(names[out]) or any(n.startswith(f"{module}.") for n in names)
        # ln of a softmax of n numbers between 0 and h lies between -h - ln n and 0.
        is_log = high[out] <= 0 and low[out] >= -high[at] - np.log(size[at])
        is_last = (prints[out], workers[at]) in last
        found[at] = (are_probabilities[out] or is_log) and is_last and not has_parts
    return found


def cuts_targets(rows: TensorRows, is_squashed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are what an activation gave to a distance from targets beyond it.

    Of an output that is never negative, and sometimes exactly 0, that is a ReLU. Targets lie beyond
    an end of what an activation gives if one does by more than half of their standard deviation,
    and their mean and 1.25 standard deviations do: so an outlier that is cut off on purpose is
    none.

    Args:
        rows: Inputs of modules and losses [R].
        is_squashed: Which of them are the tanh or sigmoid of what a module returned [R].
    """
    row_of = {pair: at for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))}
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    found = np.zeros(len(rows), dtype=bool)
    for (name, worker), at in row_of.items():
        if not _OF_NUMBERS.match(name):
            continue
        is_relu = low[at] == 0 and high[at] > 0
        target = row_of.get((re.sub(r"_0$", "_1", name), worker))
        if target is None or not (is_relu or is_squashed[at]):
            continue
        if rows.shapes[at] != rows.shapes[target] or not std[target] > 0:
            continue
        lowest = 0.0 if low[at] >= 0 else -1.0
        highest = np.inf if is_relu else 1.0
        below = lowest - low[target], lowest - mean[target]
        above = high[target] - highest, mean[target] - highest
        found[at] = any(
            farthest > _BEYOND * std[target] and middle + _MANY * std[target] > 0
            for farthest, middle in (below, above)
        )
    return found


def squeezed(
    rows: TensorRows, is_scores: npt.NDArray[np.bool_], is_judged: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which judged rows [R] reach both ends of what a second activation gives, not more.

    Args:
        rows: Any tensors [R].
        is_scores: Which of them go into losses that want raw scores [R].
        is_judged: Which of them go into losses or activations [R].
    """
    low, high, std = (rows.column(name) for name in ("min", "max", "std"))
    is_input = np.array([name.endswith("_input_0") for name in rows.names], dtype=bool) & is_judged
    found: npt.NDArray[np.bool_] = _reaches(low, high, _HALF, _SIGMOID_OF_1)
    found |= is_scores & (_reaches(low, high, 0.0, 1.0) | _reaches(low, high, -1.0, 1.0))
    found |= (low == _HALF) & (high <= 1) & (std > 0)
    for at in np.flatnonzero(is_input):
        shape = rows.shapes[at] or ()
        for size in {*shape[1:2], *shape[-1:]} - {1}:
            lowest = -math.log(math.e + size - 1)
            found[at] |= _reaches(low[at], high[at], lowest, lowest + 1)
            found[at] |= _on_line(low[at] - lowest, lowest + 1 - high[at], size)
    found &= is_input
    return found


def _reaches(low: Any, high: Any, lowest: float, highest: float) -> Any:
    """Tell of numbers, or of arrays of them, which reach both ends and not beyond."""
    is_within = (low > lowest - _EXACT) & (high < highest + _EXACT)
    return is_within & (low < lowest + _NEAR) & (high > highest - _NEAR)


def _on_line(above: float, below: float, num_classes: int) -> bool:
    """Return whether logarithms of a softmax of a softmax may be so far from both ends.

    Of probabilities 1 - d, and d for the others, the lowest logarithm is d (e - 1) / (e + C - 1)
    above its end, to first order, and the highest what is left of d below its own.
    """
    share = (math.e - 1) / (math.e + num_classes - 1)
    is_within = above > -_EXACT and -_EXACT < below < _PEAKED
    return is_within and abs(above - below * share / (1 - share)) < _ON_LINE
