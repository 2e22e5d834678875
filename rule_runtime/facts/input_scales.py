"""Sizes of a model's inputs, and of the targets of losses of numbers.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.facts.losses import RELATIVE_ERROR, Losses
from rule_runtime.facts.model_inputs import FIRST_INPUTS, are_given_to_layers, is_of_keras
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "LARGE",
    "TargetScale",
    "all_calls",
    "are_bits",
    "has_large_inputs",
    "issue_or_advice",
    "root_mean_square",
    "target_scales",
]

LARGE: Final = 5.0
"""Root mean square above which numbers were not scaled."""


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
    found = []
    for loss in step.fact(Losses).losses:
        outputs, targets = loss.outputs, loss.targets
        if outputs is not None and targets is not None and loss.kind.is_of_numbers:
            sizes = math.sqrt(targets.mean_square), math.sqrt(outputs.mean_square)
            found.append(TargetScale(loss.name, loss.worker, *sizes))
    return found


def has_large_inputs(step: StepView) -> bool:
    """Return whether a layer gets an input of the model that was not scaled.

    Args:
        step: The step.
    """
    rows = step.tensors(regex=FIRST_INPUTS)
    is_large = root_mean_square(rows.column("mean"), rows.column("std")) > LARGE
    return bool((is_large & are_given_to_layers(step, rows)).any())


def issue_or_advice(step: StepView, found: IssueFound) -> Outcome:
    """Return a finding on sizes of numbers, or advice if all losses are regressions.

    Args:
        step: The step.
        found: The finding.
    """
    losses = step.fact(Losses).losses
    if not losses or not all(loss.kind.is_of_numbers for loss in losses):
        return found
    return Passed(f"{found.evidence.sentence}. {found.evidence.remedy}")


def root_mean_square(mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return root mean squares of numbers with these means and standard deviations.

    Args:
        mean: The means.
        std: The standard deviations.
    """
    with np.errstate(over="ignore"):
        rms: npt.NDArray[np.float64] = np.hypot(mean, std)
    return rms


def all_calls(step: StepView, rows: TensorRows, at: int) -> TensorRows:
    """Return a first input of a model in all calls of the step: its inputs of the same shape.

    Args:
        step: The step.
        rows: Inputs named as `FIRST_INPUTS` [R].
        at: Row of the input; Keras has one for all calls.
    """
    name, worker, shape = rows.names[at], rows.workers[at], (rows.shapes[at] or ())[1:]
    prefix = re.escape(name.removesuffix("_input_0"))
    pattern = f"^{name}$" if is_of_keras(name) else f"^{prefix}_input_[0-9]+$"
    inputs = step.tensors(regex=(pattern,))
    pairs = zip(inputs.workers, inputs.shapes, strict=True)
    return inputs.select([(of, (own or ())[1:]) == (worker, shape) for of, own in pairs])


def are_bits(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which rows [R] have no elements but 0 and 1, and not only 0.

    Args:
        rows: The rows [R].
    """
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    may_be: npt.NDArray[np.bool_] = (low >= 0) & (high == 1)
    mean, std = (np.where(may_be, column, 0.0) for column in (mean, std))
    # Of numbers between 0 and 1 only these are equal to their squares, and so in the mean.
    return may_be & np.isclose(mean, mean**2 + std**2, rtol=RELATIVE_ERROR, atol=0.0)
