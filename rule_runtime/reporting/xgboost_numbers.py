"""Computes the numbers of the XGBoost report, as JSON.

Shape legend: N = examples, K = classes, S = rounds, B = bins, P = points of a curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from rule_runtime.plotting.metrics import metric_names
from rule_runtime.plotting.series import series_of
from rule_runtime.plotting.xgboost_tensors import IMPORTANCE_TYPES, numbers_at
from rule_runtime.reporting.classification import (
    averaged_scores,
    class_scores,
    confusion_matrix,
    roc_auc,
    roc_curve,
)
from rule_runtime.reporting.xgboost_run import Predictions, PredictionsReader
from rule_runtime.reporting.xgboost_task import BINARY, RANKING, REGRESSION, Task, detect_task
from rule_runtime.trial.errors import TrialError

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["report_numbers"]

_SCHEMA_VERSION: Final = 1
_LABEL_BINS: Final = 10
_HISTOGRAM_BINS: Final = 30
_MAX_CURVE_POINTS: Final = 300
_OBJECTIVE: Final = "hyperparameters/objective"
_OF_CLASSES: Final = ("confusion_matrix", "scores", "class_accuracy")
_OF_REGRESSION: Final = ("residuals", "error_by_label")


def report_numbers(trial: Trial) -> dict[str, Any]:
    """Return the content of the report as JSON without NaN.

    Each of the `sections` has its numbers, or `missing` with the reason.

    Raises:
        StorageError: If the storage fails, except for a missing object.
    """
    reader = PredictionsReader(trial)
    last = reader.last()
    task = None if last is None else detect_task(last, _objective(trial))
    sections: dict[str, Any] = {
        "metrics": _readable(_metrics, trial),
        "feature_importance": _readable(_feature_importance, trial),
    }
    if last is None or task is None:
        why = reader.missing or "no labels and predictions could be read"
        names = ("label_distribution", *_OF_CLASSES, "roc", *_OF_REGRESSION)
        sections |= {name: {"missing": why} for name in names}
    else:
        sections |= _of_predictions(task, last, reader)
    steps = trial.steps()
    numbers = {
        "schema_version": _SCHEMA_VERSION,
        "trial": trial.name,
        "path": trial.path,
        "has_ended": trial.loaded_all_steps,
        "rounds": {"first": min(steps, default=None), "last": max(steps, default=None)},
        "task": None if task is None else task.kind,
        "task_reason": None if task is None else task.reason,
        "num_examples": None if last is None else len(last.labels),
        "notes": reader.notes,
        "sections": sections,
    }
    plain: dict[str, Any] = _plain(numbers)
    return plain


def _of_predictions(task: Task, last: Predictions, reader: PredictionsReader) -> dict[str, Any]:
    sections: dict[str, Any] = {"label_distribution": _label_distribution(task, last)}
    not_for_it = {"missing": f"not for a task of this kind: {task.kind}"}
    sections |= dict.fromkeys((*_OF_CLASSES, "roc", *_OF_REGRESSION), not_for_it)
    if task.kind == RANKING:
        return sections
    if task.has_classes:
        sections |= _of_classes(task, last, reader.rounds())
    if task.kind == BINARY:
        sections["roc"] = _roc(last)
    if task.kind == REGRESSION:
        if last.predictions.ndim > 1:
            why = {"missing": "there are several predictions an example"}
            return sections | dict.fromkeys(_OF_REGRESSION, why)
        sections["residuals"] = _residuals(last)
        sections["error_by_label"] = _error_by_label(last, reader.rounds())
    return sections


def _objective(trial: Trial) -> str | None:
    """Return the training parameter `objective`; None if it was not saved."""
    steps = trial.tensor(_OBJECTIVE).steps() if trial.has_tensor(_OBJECTIVE) else []
    try:
        value = np.asarray(trial.tensor(_OBJECTIVE).value(steps[-1]) if steps else 0)
    except (TrialError, FormatError):
        return None
    return str(value.reshape(-1)[0]) if value.dtype.kind == "U" and value.size else None


def _readable(compute: Callable[[Trial], dict[str, Any]], trial: Trial) -> dict[str, Any]:
    """Return the numbers of a section, or why they cannot be read."""
    try:
        return compute(trial)
    except (TrialError, FormatError, ValueError) as error:
        return {"missing": f"it cannot be read: {error}"}


def _metrics(trial: Trial) -> dict[str, Any]:
    names = metric_names(trial)
    if not names:
        return {"missing": "no metric was saved: include the collection metrics"}
    workers = trial.workers_seen[:1]  # all workers have the same metrics
    _, lines = series_of(trial, names, "value", worker=workers[0] if workers else None)
    metrics = {}
    for line in lines:
        is_known = np.isfinite(line.numbers) | line.not_finite
        metrics[line.tensor] = {"rounds": line.steps[is_known], "values": line.numbers[is_known]}
    return metrics


def _feature_importance(trial: Trial) -> dict[str, Any]:
    found = {}
    names = trial.tensor_names()
    for kind in IMPORTANCE_TYPES:
        if any(name.startswith(f"feature_importance/{kind}/") for name in names):
            step, shares = numbers_at(trial, f"feature_importance/{kind}/")
            found[kind] = {"round": step, "shares": shares}
    why = "no importance was saved: include the collection feature_importance"
    return found or {"missing": why}


def _label_distribution(task: Task, last: Predictions) -> dict[str, Any]:
    if task.has_classes:
        counts = np.bincount(last.labels.astype(np.int64), minlength=task.num_classes)
        return {"round": last.step, "classes": np.arange(len(counts)), "counts": counts}
    return {"round": last.step, **_histogram(last.labels)}


def _of_classes(task: Task, last: Predictions, rounds: Iterable[Predictions]) -> dict[str, Any]:
    matrix = _matrix(task, last)
    scores = class_scores(matrix)
    steps, accuracies = [], []
    for at in rounds:
        of_round = _matrix(task, at)
        steps.append(at.step)
        accuracies.append(np.where(of_round.sum(axis=1), class_scores(of_round).recall, np.nan))
    correct = int(np.trace(matrix))
    return {
        "confusion_matrix": {"round": last.step, "rows_true_columns_predicted": matrix},
        "scores": {
            "round": last.step,
            "accuracy": correct / max(int(matrix.sum()), 1),
            "averages": averaged_scores(matrix),
            "classes": {
                "precision": scores.precision,
                "recall": scores.recall,
                "f1": scores.f1,
                "examples": scores.support,
            },
        },
        "class_accuracy": {"rounds": steps, "values": np.array(accuracies)},
    }


def _matrix(task: Task, at: Predictions) -> npt.NDArray[np.int64]:
    """Return the confusion matrix of a round; labels that are no class are ignored."""
    labels, predicted = at.labels, task.classes(at.predictions)
    limit = task.num_classes
    is_class = (labels >= 0) & (labels < limit) & (labels == np.floor(labels))
    is_class &= (predicted >= 0) & (predicted < limit)
    return confusion_matrix(labels[is_class], predicted[is_class], limit)


def _roc(last: Predictions) -> dict[str, Any]:
    false_positives, true_positives, thresholds = roc_curve(last.labels, last.predictions)
    area = roc_auc(false_positives, true_positives)
    if np.isnan(area):
        return {"missing": "all labels are of one class"}
    picked = np.arange(len(thresholds))
    if len(picked) > _MAX_CURVE_POINTS:
        picked = np.linspace(0, len(thresholds) - 1, _MAX_CURVE_POINTS).round().astype(int)
    return {
        "round": last.step,
        "auc": area,
        "false_positive_rates": false_positives[picked],
        "true_positive_rates": true_positives[picked],
        "thresholds": thresholds[picked],
    }


def _residuals(last: Predictions) -> dict[str, Any]:
    residuals = last.labels.astype(np.float64) - last.predictions
    return {
        "round": last.step,
        "mean": residuals.mean(),
        "std": residuals.std(),
        "mean_absolute": np.abs(residuals).mean(),
        "root_mean_square": np.sqrt(np.square(residuals).mean()),
        "quantiles": {f"{q:g}": np.quantile(residuals, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
        **_histogram(residuals),
    }


def _error_by_label(last: Predictions, rounds: Iterable[Predictions]) -> dict[str, Any]:
    edges = _bin_edges(last.labels, _LABEL_BINS)
    steps, errors = [], []
    for at in rounds:
        if at.predictions.ndim == 1:
            steps.append(at.step)
            absolute = np.abs(at.labels.astype(np.float64) - at.predictions)
            errors.append(_mean_by_bin(absolute, at.labels, edges))
    counts, _ = np.histogram(last.labels, edges)
    return {"edges": edges, "counts": counts, "rounds": steps, "values": np.array(errors)}


def _histogram(values: npt.NDArray[Any]) -> dict[str, Any]:
    counts, edges = np.histogram(values, _bin_edges(values, _HISTOGRAM_BINS))
    return {"edges": edges, "counts": counts}


def _bin_edges(values: npt.NDArray[Any], num_bins: int) -> npt.NDArray[np.float64]:
    """Return the edges of equally wide bins for all values [B + 1]."""
    low, high = float(values.min()), float(values.max())
    width = 0.0 if low < high else max(abs(low), 1.0) / 2
    return np.linspace(low - width, high + width, num_bins + 1)


def _mean_by_bin(
    values: npt.NDArray[Any], positions: npt.NDArray[Any], edges: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Return the mean of the values [N] per bin of their positions [N]; NaN for empty bins [B]."""
    counts, _ = np.histogram(positions, edges)
    sums, _ = np.histogram(positions, edges, weights=values)
    means = np.full(len(counts), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _plain(value: Any) -> Any:
    """Convert arrays to lists, and numbers that JSON lacks to None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
