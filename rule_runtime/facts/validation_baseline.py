"""Baselines of validation losses, and whether they are comparable with training losses."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Final, NamedTuple

from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.baseline import constant_loss
from rule_runtime.facts.validation_passes import ValidationPass, validation_passes
from rule_runtime.trial.step_view import StepView

__all__ = ["Baseline", "baseline_of", "boosting_losses", "is_comparable"]

_DISTANCE: Final = re.compile(r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance")
"""Metrics of XGBoost whose first value depends on the distance of labels from zero."""

_UNLEARNED: Final = 0.9
"""Share of the baseline above which training has hardly learned."""
_FAR_HIGHER: Final = 2.0
"""Ratio of validation to training loss that chance cannot explain before training learns."""


class Baseline(NamedTuple):
    """The baseline that a validation loss should beat.

    Attributes:
        loss: The loss of the best constant predictor, or the first training loss.
        rows: Number of rows in the mean of the constant predictor's loss; otherwise infinite.
    """

    loss: float
    rows: float


def baseline_of(one: ValidationPass) -> Baseline:
    """Return the baseline of a validation loss.

    It is the loss of a constant predictor if the loss's name or values show that it has no weights.
    """
    targets = one.targets
    is_plain = targets is not None and (targets.is_plain or targets.exact > 0)
    constant = constant_loss(one.loss, targets) if targets is not None and is_plain else 0.0
    if targets is None or not constant:
        return Baseline(one.start, math.inf)
    return Baseline(constant, targets.rows)


def is_comparable(one: ValidationPass, validation: float, training: float) -> bool:
    """Return whether validation and training losses of the first pass have the same scale.

    They differ in scale if the loss is a sum over rows, because validation batches may be larger.
    They also differ if validation is far higher before training has learned anything.
    """
    if one.targets is not None and one.targets.is_sum:
        return False
    has_learned = training <= _UNLEARNED * baseline_of(one).loss
    return has_learned or validation <= _FAR_HIGHER * training


def boosting_losses(step: StepView, memory: Memory) -> list[tuple[ValidationPass, float]]:
    """Return the validation losses of a boosting round, and the baseline of each.

    The baseline is the standard deviation of the labels for `rmse`, NaN for other distances, and
    the first training loss otherwise.

    Memory: the state of `validation_passes`, and `spread`, the standard deviation of the labels.
    """
    if not any("-" in name for name in step.tensors(collections=("losses",)).names):
        return []
    labels = step.tensors(collections=("labels",))
    for spread, shape in zip(labels.column("std").tolist(), labels.shapes, strict=True):
        if math.isfinite(spread) and math.prod((shape or ())[1:]) == 1:  # columns have units
            memory["spread"] = spread
    passes: list[ValidationPass] = []
    with contextlib.suppress(Missing):
        passes = validation_passes(step, memory)
    return [(one, _loss_of_trees(one, memory.get("spread", math.nan))) for one in passes]


def _loss_of_trees(one: ValidationPass, spread: float) -> float:
    if one.loss.endswith("-rmse"):
        return spread
    return math.nan if _DISTANCE.search(one.loss) else one.start
