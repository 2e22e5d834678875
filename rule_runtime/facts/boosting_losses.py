"""Validation losses of gradient-boosted trees beside their training losses and baselines."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rule_runtime.facts.loss_sides import loss_side, usual_names
from rule_runtime.facts.selection import finite_means
from rule_runtime.facts.tree_labels import spread_of_labels

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["BoostingLoss", "boosting_losses"]

_DISTANCE: Final = re.compile(r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance")
"""Metrics whose first value says nothing of the baseline: the labels do."""
_RMSE: Final = "-rmse"
_SLOWLY: Final = 10.0
"""Times the percentage that holds for squared errors."""
_MAX_LOSSES: Final = 32
"""Losses whose first value is remembered."""


class BoostingLoss(NamedTuple):
    """A validation loss of one boosting round.

    Attributes:
        name: Name of the metric's tensor.
        worker: The worker.
        validation: The validation loss.
        training: The training loss of the same metric at the same step.
        baseline: That of a constant predictor; NaN if it is unknown.
        is_root: Whether the loss is the root of a mean of squares.
    """

    name: str
    worker: str
    validation: float
    training: float
    baseline: float
    is_root: bool

    def limit(self, percent: float) -> float:
        """Return the loss below which validation is next to perfect.

        Args:
            percent: Of the baseline's squared error; ten times that of other losses, which come
                near to zero slowly.
        """
        share = percent / 100
        return self.baseline * (math.sqrt(share) if self.is_root else _SLOWLY * share)


def boosting_losses(step: StepView, first: dict[str, float]) -> list[BoostingLoss]:
    """Return the validation losses that stand beside training losses of the same metric.

    Args:
        step: The step.
        first: The first training loss of each metric, and `labels`, the standard deviation of the
            labels that were saved last. Changed in place.
    """
    rows = step.tensors(collections=("losses",))
    if not any("-" in name for name in rows.names):
        return []
    means, names = finite_means(rows), usual_names(step, rows)
    sides = [loss_side(name, step.mode) for name in names]
    training, found = {}, []
    for at, (metric, is_training) in enumerate(sides):
        if metric is not None and is_training and math.isfinite(means[at]):
            training[metric, rows.workers[at]] = float(means[at])
    spread = spread_of_labels(step)
    if math.isfinite(spread):
        first["labels"] = spread
    for at, (metric, is_training) in enumerate(sides):
        worker = rows.workers[at]
        beside = training.get((metric or "", worker))
        if metric is None or is_training or beside is None or not np.isfinite(means[at]):
            continue
        key = f"{worker}/{metric}"
        if key in first or len(first) < _MAX_LOSSES:
            first.setdefault(key, beside)
        baseline = first.get(key, math.nan)
        if _DISTANCE.search(metric):
            baseline = first.get("labels", math.nan) if metric == _RMSE else math.nan
        validation = float(means[at])
        is_root = metric == _RMSE
        found.append(BoostingLoss(rows.names[at], worker, validation, beside, baseline, is_root))
    return found
