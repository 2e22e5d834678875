"""Requirements on a loss, the last layer and the targets, as one table.

Each row has a condition that is a mistake for certain losses, the message and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from rule_runtime.facts.last_layers import BOUNDS
from rule_runtime.facts.layers import Layers, Signals
from rule_runtime.facts.losses import RELATIVE_ERROR, Input, Loss, LossKind, Takes
from rule_runtime.numerics.label_tally import MIN_CLASSES, MIN_ELEMENTS
from rule_runtime.trial.step_view import StepView

__all__ = ["CONTRACT", "Requirement", "combine_batches", "is_pooled"]

_EPSILON: Final = 1e-3
"""Distance from a bound or from 1 that counts as rounding."""
_LARGER_SUM: Final = 1.01
"""Mean row sum that rounding cannot cause, even in half precision."""
_BEYOND: Final = 0.5
"""Distance of a target from 0 to 1 that noisy or smoothed labels do not reach."""
_REACH: Final = 0.1
"""Relevant distance of a target from the range of outputs, in standard deviations."""
_SATURATED: Final = 0.98
"""Share of a bound from which outputs count as saturated."""
_SIGMOIDS: Final = ("hard_sigmoid", "sigmoid")
Measure = Callable[[Loss, Input, Input], float | None]


class Requirement(NamedTuple):
    """One row of the table.

    Attributes:
        broken: Returns the value that violates the requirement; None if it is met.
        message: The finding; `{o}` are the outputs, `{t}` the targets, `{v}` is the value, `{a}`
            the activation of the last layer.
        keras: The remedy in Keras if it is another one than that in PyTorch, `torch`.
        may_be_chance: Whether outputs of an untrained model may also violate it.
        ignores_pooled: Whether it ignores pooled outputs, as in SqueezeNet.
        is_constant: Whether saturated outputs violate it, as before moving averages are accurate.
        needs_many: Whether it needs 16 outputs or more; batches of fewer are combined.
        from_start: Whether the first outputs must violate it; others saturate later.
        is_advice: Whether it is advice instead of a finding: training may work.
    """

    measure: str
    broken: Measure
    limit: float
    message: str
    torch: str
    keras: str = ""
    may_be_chance: bool = False
    ignores_pooled: bool = False
    is_constant: bool = False
    needs_many: bool = False
    from_start: bool = False
    is_advice: bool = False

    def text(self, loss: Loss, outputs: Input, targets: Input, value: float) -> str:
        """Return the finding without the name of the loss."""
        shown = {"o": _shown(outputs), "t": _shown(targets), "a": loss.last.activation}
        return self.message.format(v=f"{value:.4g}", **shown)

    def remedy(self, loss: Loss) -> str:
        """Return the remedy for the framework of the loss."""
        return (loss.is_of_keras and self.keras) or self.torch


def _width(of: Input, loss: Loss) -> int:
    """Return the number of units of a row: the last axis in Keras, the second in PyTorch."""
    shape = of.shape or ()
    return 1 if len(shape) < 2 else shape[-1 if loss.is_of_keras else 1]  # noqa: PLR2004


def _are_shares(of: Input) -> bool:
    """Return whether all outputs are between 0 and 1, and too many to be so by chance."""
    return of.size >= MIN_ELEMENTS and of.low >= 0 and of.high <= 1 + _EPSILON


def _row_sum(of: Input, loss: Loss) -> float:
    return of.mean * _width(of, loss)


def _one_unit(loss: Loss, o: Input, _: Input) -> float | None:
    is_single = loss.kind is LossKind.CLASSES and len(o.shape or ()) > 1 and _width(o, loss) == 1
    return 1.0 if is_single and loss.takes is not Takes.LOG_PROBABILITIES else None


def _softmax_of_one(loss: Loss, o: Input, t: Input) -> float | None:
    is_one = max(abs(o.low - 1), abs(o.high - 1)) <= RELATIVE_ERROR and t.low < t.high
    is_known = loss.kind.is_of_numbers or loss.kind in (LossKind.CLASSES, LossKind.BINARY)
    return 1.0 if is_one and is_known and _width(o, loss) == 1 else None


def _softmax_over_rows(loss: Loss, o: Input, _: Input) -> float | None:
    rows = (o.shape or (0,))[0]
    is_column = loss.kind is LossKind.CLASSES and _are_shares(o) and rows != _width(o, loss)
    return 1.0 if is_column and abs(o.mean * rows - 1) < _EPSILON else None


def _softmax_twice(loss: Loss, o: Input, _: Input) -> float | None:
    total = _row_sum(o, loss)
    is_twice = loss.kind is LossKind.CLASSES and loss.takes is Takes.LOGITS and _are_shares(o)
    return 1.0 if is_twice and _width(o, loss) > 1 and abs(total - 1) < _EPSILON else None


def _logits(loss: Loss, o: Input, _: Input) -> float | None:
    if loss.takes is Takes.LOG_PROBABILITIES and o.high > _EPSILON:
        return o.high
    if loss.takes is not Takes.PROBABILITIES:
        return None
    if o.low < -_EPSILON:
        return o.low
    return o.high if o.high > 1 + _EPSILON else None


def _rows_that_sum_to_more(loss: Loss, o: Input, _: Input) -> float | None:
    total = _row_sum(o, loss)
    takes_rows = loss.kind is LossKind.CLASSES and loss.takes is Takes.PROBABILITIES
    is_judged = takes_rows and _width(o, loss) > 1 and _are_shares(o)
    return total if is_judged and total > _LARGER_SUM else None


def _sigmoid_twice(loss: Loss, o: Input, t: Input) -> float | None:
    is_twice = loss.kind is LossKind.BINARY and loss.takes is Takes.LOGITS and _are_shares(o)
    is_wide = o.low < _REACH and 1 - _REACH < o.high < 1
    return o.low if is_twice and is_wide and t.low < t.high else None


def _relu_before_softmax(loss: Loss, o: Input, _: Input) -> float | None:
    return 0.0 if loss.takes is Takes.LOGITS and o.low == 0 < o.high else None


def _targets_out_of_range(loss: Loss, _: Input, t: Input) -> float | None:
    """Return a target far outside of [0, 1]; a few -1 among 0 and 1 only mark missing labels."""
    are_masked = t.low.is_integer() and t.high in (0, 1) and abs(t.mean_square - 1) > _EPSILON
    if loss.kind is not LossKind.BINARY or are_masked:
        return None
    if t.low < -_BEYOND:
        return t.low
    return t.high if t.high > 1 + _BEYOND else None


def _ignored(loss: Loss, _: Input, t: Input) -> float | None:
    return t.high if loss.ignores_all_targets else None


def _several_classes(loss: Loss, o: Input, t: Input) -> float | None:
    total = _row_sum(t, loss)
    is_rows = loss.kind is LossKind.CLASSES and t.shape == o.shape and _width(o, loss) > 1
    return total if is_rows and t.low >= 0 and total > _LARGER_SUM else None


def _pairs(loss: Loss, o: Input, t: Input) -> float | None:
    """Shapes such as [B, 1] and [B] give each output with each target.

    Keras, and loss modules of the script's own, may reshape them.
    """
    is_known = (loss.kind.is_of_numbers and not loss.is_of_keras) or loss.owner == "Loss"
    if not is_known or t.low == t.high:
        return None
    try:
        num_pairs = math.prod(np.broadcast_shapes(o.shape or (), t.shape or ()))
    except ValueError:
        return None
    return float(num_pairs) if num_pairs > max(o.size, t.size) else None


def _relu_of_numbers(loss: Loss, o: Input, t: Input) -> float | None:
    is_bounded = loss.kind.is_of_numbers and o.low == 0 < o.high
    return t.low if is_bounded and t.low < -_REACH * t.std else None


def _bounded(loss: Loss, o: Input, t: Input) -> float | None:
    """Outputs of a sigmoid or tanh are driven against 1 or -1 by targets beyond."""
    is_within = loss.kind.is_of_numbers and max(abs(o.low), o.high) <= 1
    if is_within and o.high > _SATURATED and t.high > 1 + _REACH * t.std:
        return t.high
    lower = 0.0 if o.low >= 0 else -1.0
    is_at_bottom = is_within and (0 < o.low < 1 - _SATURATED or o.low < -_SATURATED)
    return t.low if is_at_bottom and t.low < lower - _REACH * t.std else None


def _constant(loss: Loss, o: Input, t: Input) -> float | None:
    """Outputs at the mean of the targets vary relative to these; others may be on the way there."""
    is_mean = loss.kind.is_of_numbers and 2 * abs(o.mean - t.mean) < t.std
    size = max(abs(o.high), (t.high - t.low) * is_mean, _EPSILON)
    return o.mean if t.low < t.high and o.range <= RELATIVE_ERROR * size else None


def _fractions(loss: Loss, _: Input, t: Input) -> float | None:
    return t.mean if loss.owner.startswith("SparseCategorical") and t.has_fractions else None


def _negative(loss: Loss, _: Input, t: Input) -> float | None:
    owners = "Poisson", "MeanSquaredLogarithmicError", "KlDivergence"
    return t.low if t.low < -_EPSILON and loss.owner.startswith(owners) else None


def _zero(loss: Loss, _: Input, t: Input) -> float | None:
    is_zero = 0 in (t.low, t.high) and loss.owner.startswith("MeanAbsolutePercentageError")
    return 0.0 if is_zero else None


def _exclusive(loss: Loss, o: Input, t: Input) -> float | None:
    """Each row of targets has one 1; outputs are those of a sigmoid, or logits for one."""
    is_sigmoid = loss.kind is LossKind.SQUARES and _are_shares(o)
    is_sigmoid &= abs(_row_sum(o, loss) - 1) > _EPSILON
    is_one_hot = t.shape == o.shape and max(abs(t.low), abs(t.high - 1)) == 0
    is_one_hot &= abs(t.mean_square - t.mean) + abs(_row_sum(t, loss) - 1) <= RELATIVE_ERROR
    is_meant = is_one_hot and (is_sigmoid or loss.kind is LossKind.BINARY)
    return 1.0 if is_meant and _width(t, loss) >= MIN_CLASSES else None


def _out_of_reach(loss: Loss, _: Input, t: Input) -> float | None:
    """Return the mean of the targets if no output of the last layer can be so large or small."""
    low, high = BOUNDS.get(loss.last.activation, (-math.inf, math.inf))
    is_beyond = t.mean < low - _EPSILON or t.mean > high + _EPSILON
    return t.mean if loss.kind.is_of_numbers and is_beyond else None


def _sigmoid_before_sigmoid(loss: Loss, _: Input, __: Input) -> float | None:
    is_twice = loss.kind is LossKind.BINARY and loss.takes is Takes.LOGITS
    return 0.0 if is_twice and loss.last.activation in _SIGMOIDS else None


def _relu_before_logits(loss: Loss, o: Input, _: Input) -> float | None:
    return o.low if loss.takes is Takes.LOGITS and loss.last.activation == "relu" else None


def _dropped(loss: Loss, _: Input, __: Input) -> float | None:
    return 0.0 if loss.last.is_dropped and loss.kind is not LossKind.UNKNOWN else None


def _shapes_that_fail(loss: Loss, o: Input, t: Input) -> float | None:
    """Return the number of targets if a loss of Keras without a value cannot compare the shapes."""
    if loss.row >= 0 or not loss.is_of_keras or loss.kind is LossKind.UNKNOWN:
        return None
    given, compared = t.shape or (), o.shape or ()
    if loss.owner.startswith("Sparse"):
        compared = compared[:-1]
    fits = given in (compared, (*compared, 1)) or (*given, 1) == compared
    return None if fits else t.size


CONTRACT: Final = (
    Requirement(
        "width",
        _one_unit,
        2,
        "compares scores of several classes, and gets one unit a row, {o}: it is always the same",
        "For two classes use nn.BCEWithLogitsLoss(), or nn.Linear(..., 2).",
        "Dense(1, activation='sigmoid') with loss='binary_crossentropy', or Dense(2, "
        "activation='softmax').",
    ),
    Requirement(
        "softmax_of_one",
        _softmax_of_one,
        1,
        "gets outputs that are all 1, {o}: a softmax over one unit",
        "Remove the softmax; for two classes, use nn.BCEWithLogitsLoss().",
        "For two classes Dense(1, activation='sigmoid'), for amounts Dense(1).",
        is_constant=True,
        needs_many=True,
        from_start=True,
    ),
    Requirement(
        "column_sum",
        _softmax_over_rows,
        1,
        "gets probabilities {o} that sum to 1 over the rows of the batch, not over the classes",
        "Give the softmax the axis of the classes: dim=1.",
        "Softmax(axis=-1).",
    ),
    Requirement(
        "row_sum",
        _softmax_twice,
        1,
        "includes a softmax, and gets outputs of a softmax, {o}",
        "Remove the softmax of the model: the loss takes logits.",
        "Remove activation='softmax' from the last layer, or set from_logits=False.",
        needs_many=True,
    ),
    Requirement(
        "output",
        _logits,
        1,
        "takes probabilities or their logarithms, and gets {o}",
        "Give NLLLoss and KLDivLoss log_softmax of the logits and BCELoss their sigmoid, or take "
        "nn.CrossEntropyLoss() or nn.BCEWithLogitsLoss().",
        "Set from_logits=True, or give the last layer activation='sigmoid' or 'softmax'.",
    ),
    Requirement(
        "row_sum",
        _rows_that_sum_to_more,
        1,
        "takes rows of probabilities that sum to 1, and gets rows that sum to {v} in the mean, "
        "{o}, as of a sigmoid",
        "Use a softmax, or nn.BCELoss() if several classes can hold at once.",
        "activation='softmax', or loss='binary_crossentropy' if several classes can hold at once.",
        needs_many=True,
    ),
    Requirement(
        "sigmoid_twice",
        _sigmoid_twice,
        0,
        "includes a sigmoid, and gets outputs that stay between 0 and 1, {o}, as of a sigmoid",
        "Remove the sigmoid of the model: the loss takes logits.",
        "Remove activation='sigmoid' from the last layer, or set from_logits=False.",
        may_be_chance=True,
        needs_many=True,
    ),
    Requirement(
        "relu_before_loss",
        _relu_before_softmax,
        0,
        "takes logits, and gets outputs of a ReLU, {o}, which are never negative",
        "Remove the ReLU after the last linear layer.",
        "Remove activation='relu' from the last layer.",
        may_be_chance=True,
        ignores_pooled=True,
        needs_many=True,
    ),
    Requirement(
        "target",
        _targets_out_of_range,
        1,
        "takes targets from 0 to 1, and gets labels {t}",
        "For several classes use nn.CrossEntropyLoss(), for amounts nn.MSELoss().",
        "For several classes Dense(classes, activation='softmax') with "
        "'sparse_categorical_crossentropy'.",
    ),
    Requirement(
        "target",
        _ignored,
        0,
        "gets labels that are all {v}, which it ignores",
        "Check how labels and padding are made: -100 marks what must not count.",
        may_be_chance=True,
    ),
    Requirement(
        "target_sum",
        _several_classes,
        1,
        "takes rows of targets that sum to 1, and gets rows that sum to {v} in the mean",
        "Use nn.BCEWithLogitsLoss() if several classes can hold at once.",
        "activation='sigmoid' with loss='binary_crossentropy'.",
    ),
    Requirement(
        "pairs",
        _pairs,
        0,
        "compares {v} pairs, each output with each target: outputs {o}, targets {t}",
        "Give outputs and targets the same shape: outputs[..., 0].",
    ),
    Requirement(
        "target",
        _relu_of_numbers,
        0,
        "gets outputs of a ReLU, {o}, which cannot reach the negative targets, {t}",
        "Remove the ReLU after the last linear layer.",
        "Remove activation='relu' from the last layer.",
        needs_many=True,
    ),
    Requirement(
        "target",
        _bounded,
        1,
        "gets outputs that stay within their bounds, {o}, as of a sigmoid or tanh, and cannot "
        "reach the targets, {t}",
        "Remove the activation after the last linear layer, or scale the targets.",
        "Remove the activation from the last layer, or scale the targets.",
        may_be_chance=True,
        needs_many=True,
    ),
    Requirement(
        "output_range",
        _constant,
        0,
        "gets the same output for all rows, {o}, though targets vary, {t}",
        "Look for dead units before the last layer; lower the learning rate. For trees, look for "
        "splits, and for features that are constant or missing where they are predicted.",
        may_be_chance=True,
        is_constant=True,
        needs_many=True,
    ),
    Requirement(
        "target",
        _fractions,
        0,
        "takes whole class numbers, and gets fractions, {t}: it cuts them off",
        "Give the labels as integers: they may be scaled, or amounts.",
    ),
    Requirement(
        "target",
        _negative,
        0,
        "takes targets that are not negative, and gets {t}",
        "Do not centre counts or probabilities; for other amounts use a squared error.",
    ),
    Requirement(
        "target",
        _zero,
        0,
        "divides by the targets, and some are 0, {t}",
        "Use a loss that does not divide, such as loss='mae'.",
    ),
    Requirement(
        "target_sum",
        _exclusive,
        1,
        "ignores that classes exclude each other: each row of targets, {t}, has one 1",
        "nn.CrossEntropyLoss() often learns faster.",
        "activation='softmax' with loss='categorical_crossentropy' often learns faster.",
        may_be_chance=True,
        needs_many=True,
        is_advice=True,
    ),
    Requirement(
        "shape",
        _shapes_that_fail,
        0,
        "fails, because the shapes of outputs, {o}, and targets, {t}, do not fit",
        "Give outputs and targets the same shape.",
        "For class numbers use 'sparse_categorical_crossentropy', for one-hot rows "
        "'categorical_crossentropy'; else give outputs and targets the same shape.",
    ),
    Requirement(
        "target_mean",
        _out_of_reach,
        0,
        "gets outputs of {a}, {o}, which cannot reach the targets, {t}",
        "Remove the activation after the last linear layer, or scale the targets.",
        "Remove the activation from the last layer, or scale the targets.",
    ),
    Requirement(
        "sigmoid_twice",
        _sigmoid_before_sigmoid,
        0,
        "includes a sigmoid, and gets outputs of {a}, {o}",
        "Remove the sigmoid of the model: the loss takes logits.",
        "Remove activation='sigmoid' from the last layer, or set from_logits=False.",
    ),
    Requirement(
        "relu_before_loss",
        _relu_before_logits,
        0,
        "takes logits, and gets outputs of {a}, {o}, which are never negative",
        "Remove the ReLU after the last linear layer.",
        "Remove activation='relu' from the last layer.",
    ),
    Requirement(
        "dropout",
        _dropped,
        0,
        "gets outputs of a dropout layer, {o}: it sets some to 0 at random",
        "Put the dropout before the last linear layer.",
        "Put the dropout before the last Dense layer.",
    ),
)
"""The requirements; the first that is broken is reported."""


def combine_batches(state: dict[str, Any], pair: tuple[Input, Input]) -> tuple[Input, Input] | None:
    """Return outputs and targets of the latest batches once they have 16 outputs or more.

    Memory: `combined`: their statistics, while there are fewer.
    """
    outputs, targets = (
        one if before is None else Input(*before).plus(one)
        for before, one in zip(state.pop("combined", (None, None)), pair, strict=True)
    )
    if outputs.size >= MIN_ELEMENTS or not math.isfinite(outputs.mean_square + targets.mean_square):
        return outputs, targets
    state["combined"] = [list(outputs), list(targets)]
    return None


def is_pooled(step: StepView, loss: Loss) -> bool:
    """Return whether the last layer is a convolution whose output is pooled before the loss."""
    layers = [layer for layer in step.fact(Layers).linear if layer.worker == loss.worker]
    size = step.fact(Signals).rows.column("size")
    outputs = loss.outputs
    return bool(layers and outputs and size[layers[-1].out] > outputs.size)


def _shown(of: Input) -> str:
    shape = "" if of.shape is None else f"{list(of.shape)} "
    ends = f"{shape}from {of.low:.3g} to {of.high:.3g}"
    return ends if of.batch_range is None else f"{ends} in several batches"
