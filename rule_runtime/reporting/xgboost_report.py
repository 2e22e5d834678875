"""Writes the report about an XGBoost run as a page, and its numbers as JSON.

The report shows the distribution of labels, metrics, feature importances, and the quality of
predictions on validation data. It detects the kind of task. It contains no verdicts. Missing data
is reported in its section; the report fails only if all data is missing.

The hook needs the collections metrics, feature_importance, predictions and labels (for instance
every 5 rounds), `validation_data`, and optionally the collection hyperparameters.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rule_runtime.optional_extra import require_report_extra

require_report_extra("create_xgboost_report", "matplotlib", "jinja2")

from markupsafe import Markup  # noqa: E402

from hook_layer.storage.base import open_store  # noqa: E402
from rule_runtime.plotting.metrics import metric_names  # noqa: E402
from rule_runtime.reporting.pages import rendered  # noqa: E402
from rule_runtime.reporting.svg import inline_svg  # noqa: E402
from rule_runtime.reporting.xgboost_numbers import report_numbers  # noqa: E402
from rule_runtime.reporting.xgboost_plots import PICTURES  # noqa: E402

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["XgboostReportPaths", "create_xgboost_report"]

_FOLDER: Final = "CreateXgboostReport"
_TEMPLATE: Final = "xgboost_report.html.j2"
_MAX_NOTES: Final = 10
_TENSORS: Final = ("labels", "predictions")
_IMPORTANCE: Final = "feature_importance/"
_SECTIONS: Final = {
    "metrics": (
        "Metrics over the rounds",
        "Training far better than validation, or validation getting worse again, is overfitting.",
    ),
    "label_distribution": (
        "Labels of the validation data",
        "With few examples, a model learns little, and its scores say little.",
    ),
    "feature_importance": (
        "Importance of the features",
        "Weight: the number of splits. Gain: the loss that a split saves. Cover: its examples.",
    ),
    "confusion_matrix": (
        "Confusion matrix",
        "Examples at the last round. The colour is the share of the true class; blue is right.",
    ),
    "scores": ("Precision, recall and F1", "At the last round, each class against all others."),
    "class_accuracy": (
        "Right predictions of each class over the rounds",
        "The diagonal of the confusion matrix, as a share of the examples of the class.",
    ),
    "roc": (
        "ROC curve",
        "What share of class 1 is found at which share of false alarms, for every threshold.",
    ),
    "residuals": (
        "Residuals",
        "Label minus prediction at the last round. A good model's lie evenly around 0.",
    ),
    "error_by_label": (
        "Error by label over the rounds",
        "Mean absolute error on validation examples, by ten bins of the label of equal width.",
    ),
}


class XgboostReportPaths(NamedTuple):
    """Paths of a report.

    Attributes:
        html: The page.
        json: Its numbers.
    """

    html: str
    json: str


def create_xgboost_report(trial: Trial, out_dir: str | os.PathLike[str]) -> XgboostReportPaths:
    """Write the report about an XGBoost run, as far as it has trained.

    You can rewrite it during training: each file is replaced as a whole.

    Args:
        trial: The trial.
        out_dir: Folder, or `s3://bucket/prefix`; the report goes into `CreateXgboostReport/` there.

    Returns:
        Paths of `xgboost_report.html`, which needs no other file and no script, and of
        `xgboost_report.json`.

    Raises:
        ValueError: If nothing was saved for a report.
        StorageError: If a storage cannot be read or written.
    """
    numbers = report_numbers(trial)
    if not _has_tensors(trial):
        raise ValueError(
            f"nothing of XGBoost was saved in {trial.path} so far: no metric, feature_importance, "
            "labels or predictions; is it the folder that the hook for XGBoost writes to?"
        )
    page = _rendered(numbers)
    store = open_store(out_dir)
    keys = [f"{_FOLDER}/xgboost_report.{suffix}" for suffix in ("html", "json")]
    store.put(keys[0], page.encode())
    store.put(keys[1], json.dumps(numbers, indent=1, allow_nan=False).encode())
    root = os.fspath(out_dir).rstrip("/")
    return XgboostReportPaths(*(f"{root}/{key}" for key in keys))


def _has_tensors(trial: Trial) -> bool:
    """Return whether any tensor that a section needs was saved, even if damaged."""
    names = trial.tensor_names()
    has_any = any(name in _TENSORS or name.startswith(_IMPORTANCE) for name in names)
    return has_any or bool(metric_names(trial))


def _rendered(numbers: dict[str, Any]) -> str:
    sections = [
        {
            "name": name,
            "title": title,
            "text": text,
            "numbers": numbers["sections"][name],
            "picture": _picture(name, numbers["sections"][name]),
        }
        for name, (title, text) in _SECTIONS.items()
    ]
    notes = numbers["notes"]
    if len(notes) > _MAX_NOTES:
        notes = [*notes[:_MAX_NOTES], f"and {len(notes) - _MAX_NOTES} more notes"]
    return rendered(
        _TEMPLATE,
        report=numbers,
        notes=notes,
        shown=[section for section in sections if "missing" not in section["numbers"]],
        missing=[section for section in sections if "missing" in section["numbers"]],
    )


def _picture(name: str, numbers: dict[str, Any]) -> Markup | None:
    draw = PICTURES.get(name)
    if draw is None or "missing" in numbers:
        return None
    # matplotlib escapes the texts in its output.
    return Markup(inline_svg(lambda: draw(numbers)))  # noqa: S704
