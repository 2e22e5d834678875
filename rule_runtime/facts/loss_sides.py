"""Which losses are training losses and which are validation losses.

XGBoost saves both at the same step. Its hook reports the training data in collections, and names
such as `train-rmse` and `validation-rmse` show it in older runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hook_layer.format.metric_names import (
    FALLING_METRICS,
    GROWING_METRICS,
    is_known_to_fall,
    is_known_to_grow,
)
from hook_layer.format.modes import ModeKeys
from rule_runtime.facts.framework import Framework, framework_of

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SIDES_OF_TREES", "is_share_of_errors", "loss_side", "usual_names"]

SIDES_OF_TREES: Final = ("training_metrics", "validation_metrics")
"""Collections of the hook for XGBoost: metrics of the training data, and of all other data."""

_NAMED: Final = re.compile(
    r"(?:(train|training)|(?:validation|valid|val|eval|evaluation|test|dev|holdout)(?:_\d{1,4})?)"
    r"-(.+)"
)
_NOT_FALLING: Final = " (not known to fall)"
"""Suffix of a metric of XGBoost that may not be a loss."""
_ERROR_RATE: Final = re.compile(r"-m?error(@|$)")


def is_share_of_errors(loss: str) -> bool:
    """Return whether a loss of XGBoost is an error rate, which moves in jumps.

    Args:
        loss: Name of the loss, such as `train-error`.
    """
    return _ERROR_RATE.search(loss) is not None


def usual_names(step: StepView, rows: TensorRows) -> list[str]:
    """Return the names of losses [R], those of XGBoost as `train-...` or `validation-...`.

    A metric of XGBoost is a loss if its name or the script (`maximize=False`) shows that it falls.
    Other metrics get a suffix, so that `loss_side` rejects them.

    Args:
        step: The step.
        rows: Its losses [R].
    """
    training, other = (_members(step, name) for name in SIDES_OF_TREES)
    falling, growing = (_members(step, name) for name in (FALLING_METRICS, GROWING_METRICS))
    is_boosted = framework_of(step) is Framework.XGBOOST
    found = []
    for pair in zip(rows.names, rows.workers, strict=True):
        name = pair[0]
        metric = name.partition("-")[2]
        if pair in training:
            name = f"train-{metric}"
        elif pair in other and loss_side(name, step.mode)[1]:
            name = f"validation-{metric}"
        falls = (pair in falling or is_known_to_fall(metric)) and pair not in growing
        found.append(name if falls or not metric or not is_boosted else name + _NOT_FALLING)
    return found


def loss_side(name: str, mode: ModeKeys) -> tuple[str | None, bool]:
    """Return the key that pairs a training and a validation loss, and whether it is for training.

    The key is None for a metric of XGBoost that is not known to fall.

    Args:
        name: Name of the tensor, as `usual_names` returns it.
        mode: Mode of its step.
    """
    is_loss = not name.endswith(_NOT_FALLING)
    named = _NAMED.fullmatch(name)
    if named is None:
        return (name if is_loss else None), mode is not ModeKeys.EVAL
    training, metric = named.groups()
    is_loss = is_loss and not is_known_to_grow(metric)
    return (f"-{metric}" if is_loss else None), training is not None


def _members(step: StepView, collection: str) -> set[tuple[str, str]]:
    """Return names and workers of the tensors of a collection."""
    rows = step.tensors(collections=(collection,))
    return set(zip(rows.names, rows.workers, strict=True))
