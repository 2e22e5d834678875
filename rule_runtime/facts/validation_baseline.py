"""What validation losses are compared with, and whether they can be compared with training."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.baseline import SURELY_MEAN, constant_loss
from rule_runtime.facts.validation_passes import ValidationPass, validation_passes

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["Baseline", "baseline_of", "boosting_losses", "is_comparable"]

_DISTANCE: Final = re.compile(r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance")
"""Metrics of XGBoost whose first value depends on how far the labels are from zero."""

_UNLEARNED: Final = 0.9
"""Share of the baseline above which training has learned next to nothing."""
_FAR_HIGHER: Final = 2.0
"""Validation loss, in training losses, that differs by more than chance before training learns."""
_OTHER_UNITS: Final = 5.0
"""Ratio of the standard deviations of two sets of targets that are in different units."""
_OTHER_SIZE: Final = 1.5
"""Ratio of rows from which a sum over rows differs clearly from a mean."""


class Baseline(NamedTuple):
    """What a validation loss should be better than.

    Attributes:
        loss: The loss of the best constant predictor, or the training loss at the beginning.
        rows: Number of rows that it is a mean of; infinite if unknown.
        is_computed: Whether it is the loss of the best constant predictor.
    """

    loss: float
    rows: float
    is_computed: bool


def baseline_of(one: ValidationPass) -> Baseline:
    """Return the baseline of a validation loss.

    The loss of a constant predictor is used if the name of the loss or its values show that it has
    no weights.

    Args:
        one: A pass of the loss.
    """
    targets = one.targets
    is_plain = targets is not None and (targets.is_plain or targets.exact > 0)
    constant = constant_loss(one.loss, targets) if targets is not None and is_plain else 0.0
    if targets is None or not constant:
        return Baseline(one.start, math.inf, is_computed=False)
    return Baseline(constant, targets.rows, is_computed=True)


def is_comparable(one: ValidationPass, validation: float, training: float) -> bool:
    """Return whether a validation loss is on the scale of the training loss.

    It is not in three cases: validation is far higher before training has learned anything; targets
    are in different units; the loss is a sum over rows, and validation has more rows in a step. A
    loss that begins near the constant predictor's is no sum. Of others, the ratio of both losses at
    the first pass shows it: it is nearer to the ratio of the rows than to 1.

    Args:
        one: A pass of the loss.
        validation: The validation loss of the first pass.
        training: The training loss of the first pass.
    """
    targets, others = one.targets, one.training_targets
    if training > _UNLEARNED * baseline_of(one).loss and validation > _FAR_HIGHER * training:
        return False
    if targets is None or others is None:
        return True
    spreads = sorted((targets.std, others.std))
    if targets.are_numbers and 0 < _OTHER_UNITS * spreads[0] < spreads[1]:
        return False
    times = targets.rows / targets.steps / others.rows
    if max(times, 1 / times) < _OTHER_SIZE:
        return True
    if targets.is_sum or one.start <= SURELY_MEAN * constant_loss(one.loss, targets):
        return not targets.is_sum
    ratio = validation / training if training else 0.0
    return ratio <= 0 or abs(math.log(ratio)) <= abs(math.log(ratio / times))


def boosting_losses(step: StepView, memory: Memory) -> list[tuple[ValidationPass, float]]:
    """Return the validation losses of a boosting round, and the baseline of each.

    The baseline is the standard deviation of the labels for `rmse`, NaN for other distances, and
    the training loss of the first round for the rest.

    Args:
        step: The step.
        memory: What `validation_passes` keeps, and `spread`, the standard deviation of the labels.
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
    return [
        (one, memory.get("spread", math.nan) if one.loss.endswith("-rmse") else _first_loss(one))
        for one in passes
    ]


def _first_loss(one: ValidationPass) -> float:
    return math.nan if _DISTANCE.search(one.loss) else one.start
