"""What makes losses of validation and training no numbers of the same scale: units and sums."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.facts.constant_answers import constants_of_targets
from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.facts.validation_rule import Training, Validation
    from rule_runtime.trial.step_view import StepView

__all__ = ["is_on_another_scale", "measured_by", "numbers_beside", "times_as_many_rows"]

_SIDES: Final = ("validation", "training")
"""What stands before the name of a loss, for validation and for training."""

_OF_SMALL_SQUARES: Final = re.compile(r"^(SmoothL1|Huber)Loss_output")
_OTHER_UNITS: Final = 5.0
_SURELY_MEAN: Final = 3.0
_OTHER_SIZE: Final = 1.5
_EVEN: Final = 0.62
_WIDER: Final = 1.5
_ELSEWHERE: Final = 0.5


def numbers_beside(step: StepView) -> dict[str, float]:
    """Return how many rows losses are of, and what guessing gives where that is known.

    Args:
        step: A step with losses.
    """
    found = {}
    inputs = step.fact(LossInputs)
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    side = _SIDES[0] if step.mode is ModeKeys.EVAL else _SIDES[1]
    for name, worker in sorted(zip(rows.names, rows.workers, strict=True))[:MAX_SERIES]:
        outputs = inputs.of(name, worker, 0)
        if outputs is not None and outputs.shape:
            found[f"{side}/{name}"] = float(outputs.shape[0])
        guess = inputs.guess(name, worker)
        targets, kind = inputs.of(name, worker, 1), inputs.kind(name, worker)
        if side == _SIDES[0] and targets is not None and targets.shape:
            # Of numbers those of a row go together, as pixels of an image do.
            is_each = kind.is_of_classes and targets.dtype.startswith("int")
            found[f"rows/{name}"] = float(targets.size if is_each else targets.shape[0])
        if targets is not None and kind.is_of_numbers:
            found |= {f"scale {side}/{name}": targets.std, f"mean {side}/{name}": targets.mean}
        if kind is LossKind.SQUARES or _OF_SMALL_SQUARES.match(name):
            found[f"squares/{name}"] = 1.0
        is_of_classes = kind.is_of_classes or kind is LossKind.BINARY
        if is_of_classes and math.isfinite(guess):
            found[f"guess/{name}"] = guess
        at = rows.names.index(name)
        if inputs.is_sum(name, worker, means[at], least=math.inf, most=math.inf):
            found[f"sum/{name}"] = 1.0
        if side == _SIDES[0]:
            found |= constants_of_targets(step, inputs, name, worker, float(means[at]))
    return found


def is_on_another_scale(validation: Validation, training: Training) -> bool:
    """Return whether targets of validation are in other units, or only its losses are sums.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    scales = [validation.beside.get(f"scale {side}/{validation.name}", 0.0) for side in _SIDES]
    is_sum = bool(validation.beside.get(f"summed/{validation.name}"))
    are_other_units = min(scales) > 0 and max(scales) > _OTHER_UNITS * min(scales)
    return are_other_units or (is_sum and _is_mean(validation, training))


def measured_by(validation: Validation, scale: float, constant: float) -> float:
    """Return by what a gap is measured: by one answer for all rows, where that is known.

    The loss at the beginning may be far above, as of targets far from zero, and of scores of many
    classes few of which occur; all there is to learn from the inputs is what one answer leaves.

    Args:
        validation: The loss of validation.
        scale: The loss at the beginning.
        constant: What one answer for all rows of validation gives; 0 if it is not known.
    """
    name, beside = validation.name, validation.beside
    if validation.of_trees or not constant:
        return scale
    is_of_classes = f"guess/{name}" in beside or f"plain/{name}" in beside
    is_little = is_of_classes and constant < _EVEN
    return scale if is_little or _are_of_other_numbers(name, beside) else min(constant, scale)


def _are_of_other_numbers(name: str, beside: Mapping[str, float]) -> bool:
    """Return whether training has more to learn, or validation lies elsewhere, as a later time."""
    of, of_training = (beside.get(f"scale {side}/{name}", 0.0) for side in _SIDES)
    means = [beside.get(f"mean {side}/{name}", 0.0) for side in _SIDES]
    return of_training > _WIDER * of or abs(means[0] - means[1]) > _ELSEWHERE * of


def _is_mean(validation: Validation, training: Training) -> bool:
    """Return whether training began near to what guessing gives, as no sum over many rows does."""
    places = ("guess", "constant", "exact")
    known = (validation.beside.get(f"{of}/{validation.name}", 0.0) for of in places)
    return training.start <= _SURELY_MEAN * max(known)


def times_as_many_rows(validation: Validation, training: Training) -> float:
    """Return how many times the rows of training validation has, if losses are sums; else 1.

    Whether they are shows at the first pass: its loss stands to that of training nearer by as their
    rows do than as one to one.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    rows = [validation.beside.get(f"{side}/{validation.name}") for side in _SIDES]
    is_mean = _is_mean(validation, training)
    if not rows[0] or not rows[1] or is_mean or validation.beside_first <= 0:
        return 1.0
    times = rows[0] / rows[1]
    if validation.beside.get(f"sum/{validation.name}"):
        return times
    share = validation.first / validation.beside_first
    if max(times, 1 / times) < _OTHER_SIZE or share <= 0:
        return 1.0
    return times if abs(math.log(share / times)) < abs(math.log(share)) else 1.0
