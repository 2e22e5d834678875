"""What makes losses of validation and training no numbers of the same scale: units and sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rule_runtime.evaluation.validation_rule import Training, Validation

__all__ = ["SIDES", "is_on_another_scale", "times_as_many_rows"]

SIDES: Final = ("validation", "training")
"""What stands ahead of the name of a loss, for validation and for training."""

_OTHER_UNITS: Final = 5.0
_SURELY_MEAN: Final = 3.0
_OTHER_SIZE: Final = 1.5


def is_on_another_scale(validation: Validation, training: Training) -> bool:
    """Tell whether targets of validation are in other units, or only its losses are sums.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    scales = [validation.beside.get(f"scale {side}/{validation.name}", 0.0) for side in SIDES]
    is_sum = bool(validation.beside.get(f"summed/{validation.name}"))
    are_other_units = min(scales) > 0 and max(scales) > _OTHER_UNITS * min(scales)
    return are_other_units or (is_sum and _is_mean(validation, training))


def _is_mean(validation: Validation, training: Training) -> bool:
    """Tell whether training began near to what guessing gives, as no sum over many rows does."""
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
    rows = [validation.beside.get(f"{side}/{validation.name}") for side in SIDES]
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
