"""Training losses of a step that should fall, apart from validation losses.

XGBoost saves both at the same step. Its hook puts the training data into its own collections; in
older runs, names such as `train-rmse` and `validation-rmse` show it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.metric_names import (
    FALLING_METRICS,
    GROWING_METRICS,
    is_known_to_fall,
    is_known_to_grow,
)
from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import XGBOOST
from rule_runtime.engine.curve_rule import Points
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.losses import OUTPUTS_OF_MODELS, Losses, with_constant_targets
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.numerics.series_memory import Series
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossSide", "loss_sides", "named_points", "training_losses", "training_points"]

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


def training_points(step: StepView) -> Points:
    """Return the finite training losses of a step that should fall, by usual name.

    Raises:
        Missing: There is no such loss.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    losses = training_losses(step, rows, means)
    if not len(rows):
        raise missing_loss(step)
    if not losses:
        raise missing_counted_loss(rows, means, "is no training loss, or need not fall")
    constant = with_constant_targets(step, losses)
    at = {names: row for names, row in losses.items() if names not in constant}
    if not at:
        raise Missing(f"all targets of {min(rows.names)} are equal", "see the rule LabelDegenerate")
    values = {names: float(means[row]) for names, row in at.items()}
    return Points(rows, at, values, _rows_of_batch(step))


def named_points(step: StepView, regex: Sequence[str]) -> Points:
    """Return the finite numbers that regular expressions select.

    Numbers of which higher is better are negated, so that all of them should fall.

    Raises:
        Missing: There is none.
    """
    rows = step.tensors(regex=regex)
    growing = step.tensors(collections=(GROWING_METRICS,)).pairs
    signs = [-1.0 if pair in growing else 1.0 for pair in rows.pairs]
    means = finite_means(rows) * np.asarray(signs)
    at = {pair: row for row, pair in enumerate(rows.pairs) if np.isfinite(means[row])}
    if not at:
        names = " or ".join(regex)
        raise Missing(f"no finite number named {names} was saved", "log it, or set tensor_regex")
    return Points(rows, at, {pair: float(means[row]) for pair, row in at.items()})


def training_losses(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, int]:
    """Return the rows of finite training losses [R] by their usual name and worker.

    Validation losses, and metrics that should grow, are excluded.
    """
    sides = loss_sides(step, rows)
    finite = np.flatnonzero(np.isfinite(means)).tolist()
    training = [at for at in finite if sides[at].is_training and sides[at].key is not None]
    return {(sides[at].name, rows.workers[at]): at for at in training}


def _rows_of_batch(step: StepView) -> float | None:
    """Return the number of rows whose mean the losses are; None if unknown.

    Each class of a sequence counts as a row. Without targets, the outputs of models show it.
    """
    rows = [loss.num_rows for loss in step.fact(Losses).losses]
    known = [num for num in rows if num is not None]
    if not known:
        outputs = step.tensors(regex=OUTPUTS_OF_MODELS).shapes
        known = [math.prod(shape[:-1]) if shape[1:] else shape[0] for shape in outputs if shape]
    return float(max(known)) if known else None


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
