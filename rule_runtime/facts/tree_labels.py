"""What the labels of boosted trees, and the objective, say of the losses beside them.

Labels are those of one data set: of another one than that which is trained on, if any is measured.

Shape legend: R = rows of labels, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.constant_answers import constants_of_labels
from rule_runtime.facts.evaluation_phases import loss_side, usual_names
from rule_runtime.numerics.series_memory import Series

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["constants_of_metrics", "has_skewed_objective", "losses_of_others", "spread_of_labels"]

_MOST_CLASSES: Final = 50
_OF_MANY: Final = "mlogloss"
_OF_CLASSES: Final = ("logloss", _OF_MANY)
_SKEWS: Final = ("^hyperparameters/(quantile|expectile)_alpha$",)
_MIDDLE: Final = 0.5
_CLOSE: Final = 1e-6
_WITH_COLUMNS: Final = 2


def constants_of_metrics(step: StepView) -> dict[str, float]:
    """Return what a constant gives by the metrics of boosted trees for which that is known.

    These are `logloss` and `mlogloss` of predictions that are probabilities, and `rmse` and `mae`
    of labels of more than 50 values.

    Args:
        step: A step; without values of labels it tells nothing.
    """
    found = {key.partition("/")[2]: value for key, value in constants_of_labels(step).items()}
    if not found:
        return {}
    # An objective of the script's own may return scores, which a metric takes for probabilities.
    labels = step.values(("labels",), step.workers[0])["labels"]
    if len(np.unique(labels)) > _MOST_CLASSES:
        return {metric: found[metric] for metric in found if metric not in _OF_CLASSES}
    predicted = step.tensors(regex=("^predictions$",))
    low, high = predicted.column("min"), predicted.column("max")
    if not len(predicted) or low.min() < 0 or high.max() > 1:
        return {}
    are_known = (_OF_MANY,) if _are_answers(predicted) else _OF_CLASSES
    return {metric: found[metric] for metric in are_known if metric in found}


def has_skewed_objective(step: StepView) -> bool:
    """Return whether a step says that trees are to answer a quantile or expectile, not the middle.

    Args:
        step: The step.
    """
    rows = step.tensors(regex=_SKEWS)
    ends = np.array([rows.column("min"), rows.column("max")])
    return bool((ends != _MIDDLE).any())


def losses_of_others(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, float]:
    """Return the smallest loss of the data that is not trained on, by metric and worker.

    Args:
        step: A step.
        rows: Its losses [R].
        means: Their values [R].
    """
    found: dict[Series, float] = {}
    names = usual_names(step, rows)
    for at in np.flatnonzero(np.isfinite(means)):
        key, of_training = loss_side(names[at], step.mode)
        if key is not None and not of_training:
            series = key.removeprefix("-"), rows.workers[at]
            found[series] = min(found.get(series, math.inf), float(means[at]))
    return found


def spread_of_labels(step: StepView) -> float:
    """Return how far labels scatter, the error of the best constant; NaN if it is not known.

    Of several columns, which may be in unlike units, it is the root of their mean variance: a
    constant for each is what an `rmse` of them all is compared with.

    Args:
        step: A step.
    """
    rows = step.tensors(collections=("labels",))
    spreads = np.array(rows.column("std"), dtype=np.float64)
    for at, (name, worker, shape) in enumerate(
        zip(rows.names, rows.workers, rows.shapes, strict=True)
    ):
        if len(shape or ()) < _WITH_COLUMNS or (shape or ())[1] < _WITH_COLUMNS:
            continue
        values = step.values((name,), worker).get(name)
        is_known = values is not None and values.ndim == _WITH_COLUMNS
        spreads[at] = _of_columns(values) if is_known and values is not None else np.nan
    return float(np.nanmin(spreads)) if np.isfinite(spreads).any() else math.nan


def _of_columns(values: npt.NDArray[np.float64]) -> float:
    return math.sqrt(values.astype(np.float64).var(axis=0).mean())


def _are_answers(predicted: TensorRows) -> bool:
    """Return whether predictions are 0 or 1 exactly, as those of a hinge loss: no probabilities."""
    low, mean, std = (predicted.column(name) for name in ("min", "mean", "std"))
    are_bits = np.isclose(mean, mean**2 + std**2, rtol=_CLOSE, atol=0.0)
    # However large a score is, its sigmoid is a little above 0, though it may be 1.
    return bool((are_bits & (low == 0)).all())
