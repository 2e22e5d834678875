"""What losses require of their outputs and targets: a table of conditions on shapes and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rule_runtime.facts.loss import Loss, LossFacts, LossValues
from rule_runtime.facts.loss_inputs import Input, LossKind
from rule_runtime.numerics.score_layout import are_scrambled, normalised_axis

__all__ = ["LossMismatch", "broken_contract", "broken_layout"]

_ROUNDING: Final = 1e-3
"""How far probabilities, their logarithms and their sums may be out of range."""
_SUM_ROUNDING: Final = 0.01
"""How far the mean sum of a row of probabilities may exceed 1."""
_TIMES_GUESS: Final = 2.0
"""Times the loss of guessing that a cross entropy must be below 0."""
_MATRIX: Final = 2
_ELEMENTWISE: Final = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
_OF_PROBABILITIES: Final = ("BCELoss", "BCEWithLogitsLoss", "MultiLabelSoftMarginLoss")
_FUNCTION: Final = "Loss"


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


@dataclass(frozen=True)
class _Condition:
    """A condition that outputs and targets of some losses break.

    Attributes:
        measure: Name of what is measured.
        losses: Names of the losses; all if there is none.
        is_broken: Whether a loss's outputs [B, ...] and targets [B, ...] break it.
        value: The measured value.
        threshold: Its limit.
        message: What is wrong, formatted with `outputs`, `targets` and `value`.
        remedy: What to do.
    """

    measure: str
    losses: tuple[str, ...]
    is_broken: Callable[[Loss, Input, Input], bool]
    value: Callable[[Loss, Input, Input], float]
    threshold: float
    message: str
    remedy: str


def broken_contract(loss: Loss) -> LossMismatch | None:
    """Return the first condition that the outputs and targets of a loss break; None if none is.

    Args:
        loss: A loss and what it compares.
    """
    outputs, targets = loss.outputs, loss.targets
    if outputs is None:
        return None
    if targets is None:
        targets = _UNKNOWN
    for condition in _CONDITIONS:
        if condition.losses and loss.owner not in condition.losses:
            continue
        if condition.is_broken(loss, outputs, targets):
            value = float(condition.value(loss, outputs, targets))
            message = condition.message.format(
                value=value, outputs=_described(outputs), targets=_described(targets)
            )
            return LossMismatch(
                condition.measure, value, condition.threshold, message, condition.remedy
            )
    return None


def broken_layout(facts: LossFacts, loss: Loss, values: LossValues) -> LossMismatch | None:
    """Return what is wrong if a loss of classes reads another dimension than that of classes.

    Args:
        facts: The losses of the step.
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
    written = facts.model_output(loss) if loss.kind.is_of_classes else None
    if written is None or not are_scrambled(written, values.outputs):
        return None
    message = f"gets scores {shape} that the model returns as {list(written.shape)}, and a view "
    message += "mixed classes and places"
    remedy = "Move the dimension of the classes by transpose or permute, not by view or reshape."
    return LossMismatch("order", float(shape[0]), 0.0, message, remedy)


_UNKNOWN: Final = Input(None, "", math.nan, math.nan, math.nan, math.nan, math.nan)


def _described(tensor: Input) -> str:
    shape = "" if tensor.shape is None else f"{list(tensor.shape)} "
    return f"{shape}from {tensor.low:.3g} to {tensor.high:.3g}"


def _num_pairs(_: Loss, outputs: Input, targets: Input) -> float:
    """Return how many pairs broadcasting makes; 0 if shapes do not fit or are not known."""
    if outputs.shape is None or targets.shape is None:
        return 0
    try:
        return math.prod(np.broadcast_shapes(outputs.shape, targets.shape))
    except ValueError:
        return 0


def _are_broadcast(loss: Loss, outputs: Input, targets: Input) -> bool:
    """Tell whether shapes such as [B, 1] and [B] make pairs; two dimensions each are meant so."""
    if loss.owner == _FUNCTION and (
        loss.kind is not LossKind.UNKNOWN or not targets.low < targets.high
    ):
        return False
    is_unlike = len(outputs.shape or ()) != len(targets.shape or ())
    return is_unlike and _num_pairs(loss, outputs, targets) > max(outputs.size, targets.size)


def _row_sum(_: Loss, __: Input, targets: Input) -> float:
    return targets.mean * (targets.shape or (1, 1))[1]


def _do_several_hold(loss: Loss, outputs: Input, targets: Input) -> bool:
    """Tell whether targets in the shape of outputs sum to more than 1 in the mean row."""
    shape = targets.shape or ()
    if len(shape) < _MATRIX or shape != outputs.shape or not targets.low >= 0:
        return False
    if loss.owner == "KLDivLoss" and len(shape) > _MATRIX:
        return False  # classes may be any dimension
    return _row_sum(loss, outputs, targets) > 1 + _SUM_ROUNDING


def _are_bits(_: Loss, __: Input, targets: Input) -> bool:
    return (targets.low, targets.high) == (0, 1)


def _farthest(_: Loss, __: Input, targets: Input) -> float:
    return targets.low if targets.low < 0 else targets.high


_CONDITIONS: Final = (
    _Condition(
        "largest",
        ("NLLLoss", "KLDivLoss"),
        lambda _, outputs, __: outputs.high > _ROUNDING,
        lambda _, outputs, __: outputs.high,
        0.0,
        "takes log probabilities, at most 0, and gets outputs {outputs}",
        "Put log_softmax before this loss, or use nn.CrossEntropyLoss, which includes it.",
    ),
    _Condition(
        "elements",
        (*_ELEMENTWISE, _FUNCTION),
        _are_broadcast,
        _num_pairs,
        0.0,
        "compares {value:g} pairs, each output with each target: outputs {outputs}, targets "
        "{targets}",
        "Give outputs and targets the same shape: outputs.squeeze(-1).",
    ),
    _Condition(
        "target",
        _OF_PROBABILITIES,
        lambda _, __, targets: targets.low < -_ROUNDING or targets.high > 1 + _ROUNDING,
        _farthest,
        1.0,
        "takes targets from 0 to 1, and gets targets {targets}",
        "Scale the targets to 0 to 1, or use nn.MSELoss for amounts.",
    ),
    _Condition(
        "target",
        ("PoissonNLLLoss",),
        lambda _, __, targets: targets.low < -_ROUNDING,
        _farthest,
        0.0,
        "takes counts of at least 0, and gets targets {targets}",
        "Use nn.MSELoss for amounts below 0.",
    ),
    _Condition(
        "target",
        ("KLDivLoss",),
        # Logarithms of probabilities, as with log_target=True, are all below 0.
        lambda _, __, targets: targets.low < -_ROUNDING and targets.high > _ROUNDING,
        _farthest,
        0.0,
        "takes probabilities, and gets targets {targets}",
        "Apply a softmax to the targets.",
    ),
    _Condition(
        "scores",
        ("CrossEntropyLoss",),
        lambda _, outputs, __: len(outputs.shape or ()) > 1 and (outputs.shape or ())[1] == 1,
        lambda _, __, ___: 1.0,
        2.0,
        "is always 0: it takes scores of several classes, and gets one score a row, {outputs}",
        "Use nn.BCEWithLogitsLoss, or return one score for each class.",
    ),
    _Condition(
        "row_sum",
        ("CrossEntropyLoss", "KLDivLoss"),
        _do_several_hold,
        _row_sum,
        1.0,
        "takes rows of targets that sum to 1, and gets rows that sum to {value:.3g} in the mean",
        "Use nn.BCEWithLogitsLoss if several classes can hold at once, or apply a softmax.",
    ),
    _Condition(
        "target",
        ("SoftMarginLoss", "HingeEmbeddingLoss"),
        _are_bits,
        lambda _, __, ___: 0.0,
        -1.0,
        "takes targets of -1 and 1, and gets 0 and 1",
        "Map the targets: 2 * targets - 1.",
    ),
    _Condition(
        "target",
        ("MultiLabelMarginLoss",),
        # Without -1 at the end, a row lists all of its classes.
        lambda *given: _are_bits(*given) and (given[2].shape or (0,))[-1] > _MATRIX,
        lambda _, __, ___: 0.0,
        -1.0,
        "takes the numbers of each row's classes, followed by -1, and gets 0 and 1",
        "Use nn.MultiLabelSoftMarginLoss, which takes 0 and 1.",
    ),
    _Condition(
        "loss",
        (),
        lambda loss, _, __: (
            loss.kind is LossKind.LOOKS_LIKE_CLASSES
            and loss.others is None
            and loss.value < -_TIMES_GUESS * max(loss.guess, 1.0)
        ),
        lambda loss, _, __: loss.value,
        0.0,
        "is {value:.4g}, and a loss of class scores should fall to 0 from above",
        "Change the sign of the loss, or put log_softmax before it.",
    ),
)
"""The first condition that is broken is reported."""
