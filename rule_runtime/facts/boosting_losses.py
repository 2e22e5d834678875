"""Validation losses of gradient-boosted trees, with the baseline of each."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Final

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.baseline import spread_of_labels
from rule_runtime.facts.validation_passes import ValidationPass, validation_passes

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["boosting_losses"]

_DISTANCE: Final = re.compile(r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance")
"""Metrics whose first value depends on how far the labels are from zero."""
_RMSE: Final = "-rmse"


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
    spread = spread_of_labels(step)
    if math.isfinite(spread):
        memory["spread"] = spread
    passes: list[ValidationPass] = []
    with contextlib.suppress(Missing):
        passes = validation_passes(step, memory)
    return [(one, _baseline(one, memory.get("spread", math.nan))) for one in passes]


def _baseline(one: ValidationPass, spread: float) -> float:
    if one.loss.endswith(_RMSE):
        return spread
    return math.nan if _DISTANCE.search(one.loss) else one.start
