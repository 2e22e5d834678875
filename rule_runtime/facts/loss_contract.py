"""What losses require of the shapes and ranges of their outputs and targets."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from rule_runtime.facts.losses import Input, Loss, Losses, LossValues
from rule_runtime.numerics.score_layout import are_scrambled, normalised_axis

__all__ = ["LossMismatch", "broken_contract", "broken_layout"]

_ROUNDING: Final = 1e-3
"""How far elements may be out of their range."""
_SUM_ROUNDING: Final = 0.01
"""How far the mean sum of a row of probabilities may exceed 1."""
_MATRIX: Final = 2
_FUNCTION: Final = "Loss"
_OF_NUMBERS: Final = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", _FUNCTION)
_OF_ROWS: Final = ("CrossEntropyLoss", "KLDivLoss")


class LossMismatch(NamedTuple):
    """What is wrong with the outputs or targets of a loss.

    Attributes:
        measure: Name of what was measured.
        value: The measured value.
        threshold: The limit that it exceeds.
        message: What is wrong.
        remedy: What to do.
    """

    measure: str
    value: float
    threshold: float
    message: str
    remedy: str


class _Range(NamedTuple):
    """Range of what some losses take.

    Attributes:
        losses: Names of the losses.
        measure: `output` or `target`.
        low: Smallest element.
        high: Largest element.
        noun: What the loss takes, in words.
        remedy: What to do.
    """

    losses: tuple[str, ...]
    measure: str
    low: float
    high: float
    noun: str
    remedy: str


_RANGES: Final = (
    _Range(
        ("NLLLoss", "KLDivLoss"),
        "output",
        -math.inf,
        0.0,
        "log probabilities, at most 0",
        "Put log_softmax before this loss, or use nn.CrossEntropyLoss, which includes it.",
    ),
    _Range(
        ("BCELoss", "BCEWithLogitsLoss", "MultiLabelSoftMarginLoss"),
        "target",
        0.0,
        1.0,
        "targets from 0 to 1",
        "Scale the targets to 0 to 1, or use nn.MSELoss for amounts.",
    ),
    _Range(
        ("PoissonNLLLoss",),
        "target",
        0.0,
        math.inf,
        "counts of at least 0",
        "Use nn.MSELoss for amounts below 0.",
    ),
)


def broken_contract(loss: Loss) -> LossMismatch | None:
    """Return the first requirement that outputs or targets of a loss break; None if none is.

    Args:
        loss: A loss and what it compares.
    """
    outputs, targets = loss.outputs, loss.targets
    if outputs is None:
        return None
    found = _out_of_range(loss, outputs, targets)
    if found is not None or targets is None:
        return found
    return _pairs(loss, outputs, targets) or _row_sum(loss, outputs, targets)


def broken_layout(losses: Losses, loss: Loss, values: LossValues) -> LossMismatch | None:
    """Return what is wrong if a loss of classes reads another dimension than that of classes.

    Args:
        losses: The losses of the step.
        loss: One of them.
        values: Its outputs and targets.
    """
    if not (loss.kind.is_of_classes or loss.owner in ("KLDivLoss", _FUNCTION)):
        return None
    shape, axis = list(values.outputs.shape), normalised_axis(values.outputs)
    if axis is not None:
        message = f"gets probabilities {shape} that sum to 1 along dimension {axis}, not 1"
        remedy = "Give the softmax the dimension of the classes: dim=1."
        return LossMismatch("axis", float(axis), 1.0, message, remedy)
    written = losses.model_output(loss) if loss.kind.is_of_classes else None
    if written is None or not are_scrambled(written, values.outputs):
        return None
    message = f"gets scores {shape} that the model returns as {list(written.shape)}, and a view "
    message += "mixed classes and places"
    remedy = "Move the dimension of the classes by transpose or permute, not by view or reshape."
    return LossMismatch("order", float(shape[0]), 0.0, message, remedy)


def _described(tensor: Input) -> str:
    shape = "" if tensor.shape is None else f"{list(tensor.shape)} "
    return f"{shape}from {tensor.low:.3g} to {tensor.high:.3g}"


def _out_of_range(loss: Loss, outputs: Input, targets: Input | None) -> LossMismatch | None:
    for of in _RANGES:
        tensor = outputs if of.measure == "output" else targets
        if loss.owner not in of.losses or tensor is None:
            continue
        is_low, is_high = tensor.low < of.low - _ROUNDING, tensor.high > of.high + _ROUNDING
        if is_low or is_high:
            value, limit = (tensor.low, of.low) if is_low else (tensor.high, of.high)
            message = f"takes {of.noun}, and gets {of.measure}s {_described(tensor)}"
            return LossMismatch(of.measure, value, limit, message, of.remedy)
    return None


def _pairs(loss: Loss, outputs: Input, targets: Input) -> LossMismatch | None:
    """Return whether shapes such as [B, 1] and [B] make pairs; equal numbers of axes mean it."""
    if loss.owner not in _OF_NUMBERS or loss.kind.is_of_classes or targets.low == targets.high:
        return None
    shapes = outputs.shape or (), targets.shape or ()
    try:
        num_pairs = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return None
    if len(shapes[0]) == len(shapes[1]) or num_pairs <= max(outputs.size, targets.size):
        return None
    message = f"compares {num_pairs} pairs, each output with each target: outputs "
    message += f"{_described(outputs)}, targets {_described(targets)}"
    remedy = "Give outputs and targets the same shape: outputs.squeeze(-1)."
    return LossMismatch("elements", num_pairs, 0.0, message, remedy)


def _row_sum(loss: Loss, outputs: Input, targets: Input) -> LossMismatch | None:
    """Return whether rows have one score, or targets that sum to more than 1 in the mean row."""
    shape = targets.shape or ()
    if loss.owner == "CrossEntropyLoss" and (outputs.shape or ())[1:2] == (1,):
        message = "is always 0: it takes scores of several classes, and gets one score a row, "
        remedy = "Use nn.BCEWithLogitsLoss, or return one score for each class."
        return LossMismatch("scores", 1.0, 2.0, message + _described(outputs), remedy)
    if loss.owner not in _OF_ROWS or len(shape) < _MATRIX or shape != outputs.shape:
        return None
    mean_sum = targets.mean * shape[1]
    if targets.low < 0 or not mean_sum > 1 + _SUM_ROUNDING:
        return None
    if loss.owner == "KLDivLoss" and len(shape) > _MATRIX:
        return None  # classes may be any dimension
    message = f"takes rows of targets that sum to 1, and gets rows that sum to {mean_sum:.3g} in "
    message += "the mean"
    remedy = "Use nn.BCEWithLogitsLoss if several classes can hold at once, or apply a softmax."
    return LossMismatch("row_sum", mean_sum, 1.0, message, remedy)
