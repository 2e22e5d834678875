"""Boosted trees that were given one label: XGBoost saves no labels of training to look at."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from rule_runtime.facts.evaluation_phases import usual_names
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["is_of_one_label"]

_OF_TREES: Final = re.compile(
    r"^train-(?:(logloss)|(mlogloss)|(rmse|mae|mphe|quantile)|(m?error))$"
)
_EQUAL: Final = 0.01
_TELLING: Final = 0.1
_TWO: Final = 2


def is_of_one_label(step: StepView, losses: TensorRows, at: int) -> bool:
    """Return whether a loss of training is that of one label in all rows, and answers are alike.

    Where every label is the same, no tree has a split: `logloss` is -ln of the probability of that
    label, `mlogloss` that of the largest, distances are next to nothing and there are no errors,
    though the labels of validation scatter.

    Args:
        step: A round.
        losses: Its losses.
        at: The row of the loss of training.
    """
    metric = _OF_TREES.match(usual_names(step, losses)[at])
    beside = step.tensors(regex=("^(predictions|labels)$",))
    rows = {
        name: row
        for row, (name, worker) in enumerate(zip(beside.names, beside.workers, strict=True))
        if worker == losses.workers[at]
    }
    if metric is None or len(rows) < _TWO:
        return False
    loss = float(finite_means(losses)[at])
    spread = float(beside.column("std")[rows["labels"]])
    low, high = (float(beside.column(name)[rows["predictions"]]) for name in ("min", "max"))
    if not spread > 0:
        return False
    if metric[3]:
        return low == high and loss < _TELLING * spread
    if metric[4]:
        return low == high and loss == 0
    is_alike = low == high if metric[1] else _are_alike(step, losses.workers[at], loss, high)
    shares = (high, 1 - high) if metric[1] else (high,)
    return (
        is_alike
        and abs(high - 1 / 2) > _TELLING
        and any(0 < p < 1 and math.isclose(loss, -math.log(p), rel_tol=_EQUAL) for p in shares)
    )


def _are_alike(step: StepView, worker: str, loss: float, largest: float) -> bool:
    """Return whether class probabilities are the same in all rows, and fit the loss."""
    if not 0 < largest < 1 or not math.isclose(loss, -math.log(largest), rel_tol=_EQUAL):
        return False
    values = step.values(("predictions",), worker).get("predictions")
    is_matrix = values is not None and values.ndim == _TWO and len(values) > 1
    return values is not None and is_matrix and bool((values == values[0]).all())
