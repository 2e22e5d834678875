"""Separates training losses from validation losses.

XGBoost saves both at the same step. Its hook puts the training data into its own collections; in
older runs, names such as `train-rmse` and `validation-rmse` show it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hook_layer.format.metric_names import (
    FALLING_METRICS,
    GROWING_METRICS,
    is_known_to_fall,
    is_known_to_grow,
)
from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import XGBOOST
from rule_runtime.facts.framework import framework_of
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossSide", "loss_sides"]

_SIDES_OF_TREES: Final = ("training_metrics", "validation_metrics")
"""Collections of the XGBoost hook: metrics of the training data, and of all other data."""

_NAMED: Final = re.compile(
    r"(?:(train|training)|(?:validation|valid|val|eval|evaluation|test|dev|holdout)(?:_\d{1,4})?)"
    r"-(.+)"
)


class LossSide(NamedTuple):
    """Whether a loss is a training loss, and which losses it is compared with.

    Attributes:
        name: Name of the loss; for XGBoost always `train-...` or `validation-...`.
        key: Shared by a training loss and its validation losses; None for an XGBoost metric that
            may not be a loss.
        is_training: Whether it is a training loss.
    """

    name: str
    key: str | None
    is_training: bool


def loss_sides(step: StepView, rows: TensorRows) -> list[LossSide]:
    """Return the sides of a step's losses [R].

    An XGBoost metric is a loss if its name or the script (`maximize=False`) shows that it should
    fall.
    """
    names = (*_SIDES_OF_TREES, FALLING_METRICS, GROWING_METRICS)
    training, other, falling, growing = (step.tensors(collections=(of,)).pairs for of in names)
    is_boosted = framework_of(step) is XGBOOST
    found = []
    for pair in rows.pairs:
        name, metric = pair[0], pair[0].partition("-")[2]
        if pair in training:
            name = f"train-{metric}"
        elif pair in other and _is_training(name, step.mode):
            name = f"validation-{metric}"
        named = _NAMED.fullmatch(name)
        is_loss = named is None or not is_known_to_grow(named[2])
        if is_boosted and metric:
            is_loss &= (pair in falling or is_known_to_fall(metric)) and pair not in growing
        key = name if named is None else f"-{named[2]}"
        found.append(LossSide(name, key if is_loss else None, _is_training(name, step.mode)))
    return found


def _is_training(name: str, mode: ModeKeys) -> bool:
    """Return whether a loss is a training loss, by its name, otherwise by the mode."""
    named = _NAMED.fullmatch(name)
    return mode is not ModeKeys.EVAL if named is None else named[1] is not None
