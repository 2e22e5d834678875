"""Detects the task of an XGBoost run, and converts its predictions to classes.

Shape legend: N = examples, K = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.reporting.xgboost_run import Predictions

__all__ = ["BINARY", "MULTICLASS", "RANKING", "REGRESSION", "Task", "detect_task"]

BINARY: Final = "binary"
MULTICLASS: Final = "multiclass"
REGRESSION: Final = "regression"
RANKING: Final = "ranking"

_MAX_CLASSES: Final = 1000
_BY_OBJECTIVE: Final = {
    "binary": BINARY,
    "multi": MULTICLASS,
    "reg": REGRESSION,
    "count": REGRESSION,
    "survival": REGRESSION,
    "rank": RANKING,
}
_UNSPECIFIC_OBJECTIVES: Final = ("reg:logistic",)


@dataclass(frozen=True)
class Task:
    """The kind of a task.

    Attributes:
        kind: `binary`, `multiclass`, `regression` or `ranking`.
        reason: How the task was detected.
        num_classes: Number of classes; 0 for other tasks.
        threshold: For two classes, predictions above this mean class 1.
    """

    kind: str
    reason: str
    num_classes: int = 0
    threshold: float = 0.5

    @property
    def has_classes(self) -> bool:
        """True if labels are classes."""
        return self.num_classes > 0

    def classes(self, predictions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the predicted classes [N] of predictions [N] or [N, K]."""
        if predictions.ndim > 1:
            return np.asarray(predictions.argmax(axis=1), np.int64)
        if self.kind == BINARY:
            return np.asarray(predictions > self.threshold, np.int64)
        return np.asarray(predictions, np.int64)


def detect_task(last: Predictions, objective: str | None) -> Task:
    """Return the task of a run, from its last round and its parameter `objective`.

    It is the objective's task, if labels and predictions fit. Otherwise it is multiclass for
    several predictions per example, or if labels and predictions are whole numbers; binary for
    labels 0 and 1 with predictions between; else regression.
    """
    by_data = _task_of(last)
    said = None if objective is None else _BY_OBJECTIVE.get(objective.partition(":")[0])
    if objective in _UNSPECIFIC_OBJECTIVES:
        said = None
    reason = f"the objective is {objective}"
    if said in {REGRESSION, RANKING}:
        return Task(said or REGRESSION, reason)
    if said == BINARY and last.predictions.ndim == 1 and _are_whole(last.labels, 1):
        threshold = 0.0 if _is_margin(objective, last.predictions) else 0.5
        return Task(BINARY, reason, 2, threshold)
    if said == MULTICLASS and by_data.kind == MULTICLASS:
        return Task(MULTICLASS, reason, by_data.num_classes)
    return by_data


def _task_of(last: Predictions) -> Task:
    labels, predictions = last.labels, last.predictions
    if predictions.ndim > 1:
        count = predictions.shape[1]
        if count > _MAX_CLASSES:
            return Task(REGRESSION, f"there are {count} predictions an example, too many classes")
        if _are_whole(labels, count - 1):
            return Task(MULTICLASS, f"there are {count} predictions an example", count)
        return Task(REGRESSION, "there are several predictions an example, and no classes")
    is_share = bool(((predictions >= 0) & (predictions <= 1)).all())
    if _are_whole(labels, 1) and is_share:
        return Task(BINARY, "labels are 0 and 1, and predictions between them", 2)
    largest = int(max(labels.max(), predictions.max(), 0))
    if largest < _MAX_CLASSES and _are_whole(labels, largest) and _are_whole(predictions, largest):
        return Task(MULTICLASS, "labels and predictions are whole numbers", largest + 1)
    return Task(REGRESSION, "labels or predictions are not classes")


def _are_whole(values: npt.NDArray[Any], largest: int) -> bool:
    return bool(((values >= 0) & (values <= largest) & (values == np.floor(values))).all())


def _is_margin(objective: str | None, predictions: npt.NDArray[Any]) -> bool:
    return objective == "binary:logitraw" or bool((predictions < 0).any())
