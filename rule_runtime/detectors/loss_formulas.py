"""Detects the formula of a loss from its outputs, targets and value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.curves import FEWEST, LEVEL, is_falling
from rule_runtime.numerics.label_tally import MIN_CLASSES
from rule_runtime.numerics.loss_pair import (
    MAX_ELEMENTS,
    MIN_MATCHES,
    TOLERANCE,
    LossPair,
    loss_pair,
)

__all__ = ["WRONG_LOSSES", "Formula", "is_opposite", "negated", "recognise"]

_Values = Iterator[tuple[str, float]]

_ROUNDING: Final = 1e-6
"""Absolute error of a recomputed loss: logarithms contain constants of about 1e-7."""


class Formula(NamedTuple):
    """A wrong way to compute a loss from outputs and targets.

    Attributes:
        values: Returns its values for outputs and targets, each with a description; empty if it
            cannot be computed, or is correct.
        message: The finding, with `{}` for the description.
    """

    name: str
    values: Callable[[LossPair], _Values]
    message: str
    remedy: str


def recognise(
    formulas: Sequence[Formula],
    state: dict[str, Any],
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    loss: float,
) -> tuple[Formula, float] | None:
    """Return the wrong formula of a loss, and the value of a correct one.

    It returns None until a wrong formula matches. The description is inserted into the message.

    The formula must match at the first step and at every later step at which any formula matches,
    at two or more. No correct formula may match at all of them. Keras saves the mean loss of the
    epoch so far, which matches only at the epoch's first step.

    Args:
        formulas: Wrong formulas.
        state: JSON state of this loss, changed in place: `steps`, their number, and the formulas
            that matched at all of them, `wrong` and `right`.
        values: Outputs [B, ...] and targets [B, ...] or one target for all.
        loss: The loss.
    """
    pair = loss_pair(*values)
    if pair is None or not math.isfinite(loss):
        return None
    with np.errstate(all="ignore"):
        right = list(_right_losses(pair))
        wrong = {
            formula.message.format(text): (formula, value)
            for formula in formulas
            for text, value in formula.values(pair)
        }
    sides = {"right": right, "wrong": [(text, value) for text, (_, value) in wrong.items()]}
    matching = {
        side: list(dict.fromkeys(text for text, value in computed if _is_near(value, loss, pair)))
        for side, computed in sides.items()
    }
    if state.get("steps") and not any(matching.values()):
        return None
    for side, texts in matching.items():
        state[side] = [text for text in texts if text in state.get(side, texts)]
    state["steps"] = min(state.get("steps", 0) + 1, MIN_MATCHES)
    if state["steps"] < MIN_MATCHES or state["right"] or not state["wrong"]:
        return None
    expected = min((value for _, value in right), key=lambda of: abs(of - loss), default=0.0)
    message = state["wrong"][0]
    return wrong[message][0]._replace(message=message), expected


def is_opposite(history: list[list[float]], loss: float, correlation: float) -> bool:
    """Return whether a loss falls because its outputs become the opposite of the targets.

    For example, the script minimises a score that it should maximise. Distances do not show that: a
    right overlap loss first raises all outputs, and with them the distance to rare targets of 1.

    Args:
        history: The loss and the correlation at the latest steps, changed in place.
        loss: The loss.
        correlation: Correlation of its outputs and targets.
    """
    if not math.isfinite(loss) or not math.isfinite(correlation):
        return False
    history[:] = [*history[1 - FEWEST :], [loss, correlation]]
    losses, correlations = np.array(history).T
    are_falling = len(history) >= FEWEST and is_falling(losses) and is_falling(correlations)
    return are_falling and max(correlations[-LEVEL:]) < 0


def negated(loss: float, standard: Mapping[str, float]) -> str:
    """Return the usual loss whose negative a loss is; "" if there is none."""
    for name, value in standard.items():
        if value > _ROUNDING and math.isclose(loss, -value, rel_tol=TOLERANCE):
            return name
    return ""


def _is_near(value: float, loss: float, pair: LossPair) -> bool:
    """Return whether a loss is a mean, or its sum over columns or all elements."""
    factors = {1, pair.t.size // len(pair.o) or 1, pair.t.size}
    near = TOLERANCE * abs(loss) + _ROUNDING
    return any(abs(factor * value - loss) <= near for factor in factors)


def _right_losses(pair: LossPair) -> _Values:
    """Yield values of usual losses; a critic maximises one mean and minimises the other."""
    for name, losses in pair.usual_losses.items():
        yield name, float(losses.mean())
    if pair.errors.size:
        yield "root of squares", math.sqrt(np.square(pair.errors).mean())
    if pair.is_elementwise:
        difference = float(np.mean(pair.errors))
        yield from (("difference of means", difference), ("minus difference", -difference))


def _distances(errors: npt.ArrayLike, sign: int = 1) -> _Values:
    """Yield the mean square and the mean size of errors."""
    yield "square", sign * float(np.square(errors).mean())
    yield "size", sign * float(np.abs(errors).mean())


def _of_each_pair(pair: LossPair) -> _Values:
    if pair.is_elementwise and pair.o.shape[1] == 1 and pair.o.size * pair.t.size <= MAX_ELEMENTS:
        yield from _distances(pair.o - pair.t.reshape(1, -1))


def _of_means(pair: LossPair) -> _Values:
    if pair.is_elementwise:
        yield from _distances(np.mean(pair.errors))


def _of_wrong_sign(pair: LossPair) -> _Values:
    if pair.is_elementwise:
        yield from _distances(pair.errors, -1)


def _of_class_numbers(pair: LossPair) -> _Values:
    if pair.by_class is not None and pair.by_class.scores.shape[1] >= MIN_CLASSES:
        yield from _distances(pair.by_class.scores - pair.by_class.classes[:, None])


def _of_shares_of_rows(pair: LossPair) -> _Values:
    if pair.by_class is not None and pair.are_normalised_over_rows:
        yield "1", -float(pair.by_class.own(pair.by_class.scores).mean())


WRONG_LOSSES: Final = (
    Formula(
        "elements",
        _of_each_pair,
        "is the mean {} of the differences of every output from every target",
        "Give outputs and targets the same shape: outputs[..., 0].",
    ),
    Formula(
        "means",
        _of_means,
        "is the {} of the difference of the means of outputs and targets: errors cancel out",
        "Average the errors, not the outputs: ((outputs - targets) ** 2).mean().",
    ),
    Formula(
        "sign",
        _of_wrong_sign,
        "is minus the mean {} of the errors, so training makes them larger",
        "Change the sign of the loss.",
    ),
    Formula(
        "classes",
        _of_class_numbers,
        "is the mean {} of the differences of every score from the number of the class",
        "Use a loss of classes, such as nn.CrossEntropyLoss.",
    ),
    Formula(
        "rows",
        _of_shares_of_rows,
        "gets logarithms of probabilities that sum to {} over the rows of the batch, not over the "
        "classes",
        "Give the log_softmax the axis of the classes: dim=1.",
    ),
)
"""Wrong loss formulas."""
