"""Sizes of a model's inputs, and of the targets of losses of numbers.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.model_inputs import is_of_keras

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["TargetScale", "are_bits", "of_all_calls", "root_mean_square", "target_scales"]

_ROUNDING: Final = 1e-6
"""Relative error of statistics in single precision."""


class TargetScale(NamedTuple):
    """Sizes of the targets and outputs of a loss of numbers.

    Attributes:
        loss: Name of the loss.
        worker: The worker.
        targets: Root mean square of the targets.
        outputs: That of the outputs.
    """

    loss: str
    worker: str
    targets: float
    outputs: float


def target_scales(step: StepView) -> list[TargetScale]:
    """Return the sizes of targets and outputs of all losses of numbers.

    Args:
        step: A training step.
    """
    inputs = step.fact(LossInputs)
    losses = step.tensors(collections=("losses",))
    found = []
    for loss, worker in sorted(zip(losses.names, losses.workers, strict=True)):
        outputs, targets = inputs.of(loss, worker, 0), inputs.of(loss, worker, 1)
        if outputs is not None and targets is not None and inputs.kind(loss, worker).is_of_numbers:
            sizes = math.sqrt(targets.mean_square), math.sqrt(outputs.mean_square)
            found.append(TargetScale(loss, worker, *sizes))
    return found


def root_mean_square(mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return root mean squares of numbers with these means and standard deviations.

    Args:
        mean: The means.
        std: The standard deviations.
    """
    with np.errstate(over="ignore"):
        rms: npt.NDArray[np.float64] = np.hypot(mean, std)
    return rms


def of_all_calls(
    step: StepView, rows: TensorRows, places: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return mean and standard deviation of first inputs, in all calls of their models [R].

    Args:
        step: The step.
        rows: Inputs named as `FIRST_INPUTS` [R].
        places: Which of them; others are NaN.
    """
    found = np.full((2, len(rows)), np.nan)
    for at in places:
        found[:, at] = _of_calls(step, rows, int(at))
    return found[0], found[1]


def _of_calls(step: StepView, rows: TensorRows, at: int) -> tuple[float, float]:
    """Return mean and standard deviation of a first input, in all calls of its model together.

    Inputs of later calls have higher numbers, as have further inputs of a call: those of the same
    shape count.
    """
    if is_of_keras(rows.names[at]):  # all calls of a step are one input
        return float(rows.column("mean")[at]), float(rows.column("std")[at])
    model, shape = rows.names[at].removesuffix("_input_0"), (rows.shapes[at] or ())[1:]
    inputs = step.tensors(regex=(f"^{re.escape(model)}_input_[0-9]+$",))
    pairs = zip(inputs.workers, inputs.shapes, strict=True)
    same = [
        place
        for place, (worker, of) in enumerate(pairs)
        if worker == rows.workers[at] and (of or ())[1:] == shape
    ]
    size, mean, std = (inputs.column(name)[same] for name in ("size", "mean", "std"))
    share = np.where(np.isnan(std), 0.0, size / size.sum())
    middle = float(np.nansum(share * mean))
    spread = np.sqrt(share) * root_mean_square(mean - middle, std)
    return middle, math.hypot(*np.nan_to_num(spread).tolist())


def are_bits(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which rows [R] have no elements but 0 and 1, and not only 0.

    Args:
        rows: The rows [R].
    """
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    may_be: npt.NDArray[np.bool_] = (low >= 0) & (high == 1)
    mean, std = (np.where(may_be, column, 0.0) for column in (mean, std))
    # Of numbers between 0 and 1 only these are equal to their squares, and so in the mean.
    return may_be & np.isclose(mean, mean**2 + std**2, rtol=_ROUNDING, atol=0.0)
