"""Plots the sections of the XGBoost report from its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from rule_runtime.plotting.figures import GREY, LINE_COLORS, figure_of, new_axes, new_figure
from rule_runtime.plotting.lines import draw_lines
from rule_runtime.plotting.metrics import draw_metrics
from rule_runtime.plotting.series import Series
from rule_runtime.plotting.xgboost import draw_bars

__all__ = ["PICTURES"]

_MAX_ANNOTATED_CLASSES: Final = 20
_MAX_TICKED_CLASSES: Final = 40
_SHOWN_IMPORTANCES: Final[tuple[str, ...]] = ("weight", "gain", "cover")


def _metrics(numbers: dict[str, Any]) -> Figure:
    lines = [_line(name, metric["rounds"], metric["values"]) for name, metric in numbers.items()]
    # A metric has only rounds with known values, because JSON has no NaN.
    return draw_metrics([replace(line, not_finite=~np.isfinite(line.numbers)) for line in lines])


def _feature_importance(numbers: dict[str, Any]) -> Figure:
    kinds = [kind for kind in _SHOWN_IMPORTANCES if kind in numbers] or list(numbers)
    most = max(len(numbers[kind]["shares"]) for kind in kinds)
    figure = new_figure(9.0, 1.2 + 0.24 * min(most, 20))
    for ax, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        draw_bars(numbers[kind]["shares"], 20, ax)
        ax.grid(visible=True, axis="x", alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(f"share by {kind}")
    return figure


def _label_distribution(numbers: dict[str, Any]) -> Figure:
    if "edges" in numbers:
        return _histogram(numbers, "label")
    axes = new_axes(None, 9.0, 3.0)
    axes.bar(numbers["classes"], numbers["counts"], color=LINE_COLORS[0])
    if len(numbers["classes"]) <= _MAX_TICKED_CLASSES:
        axes.set_xticks(numbers["classes"])
    axes.set_xlabel("class")
    axes.set_ylabel("examples")
    axes.set_axisbelow(True)
    return figure_of(axes)


def _confusion_matrix(numbers: dict[str, Any]) -> Figure:
    matrix = np.array(numbers["rows_true_columns_predicted"])
    count = len(matrix)
    side = min(2.6 + 0.42 * count, 8.0)
    axes = new_figure(side + 1.0, side).subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    # Colours differ in transparency, so empty cells show the page's background.
    pixels = np.zeros((count, count, 4))
    pixels[:] = (0.84, 0.37, 0.0, 0.0)
    pixels[np.arange(count), np.arange(count)] = (0.0, 0.45, 0.70, 0.0)
    pixels[..., 3] = np.where(matrix, 0.1 + 0.65 * shares, 0.0)
    axes.imshow(pixels, interpolation="nearest")
    if count <= _MAX_ANNOTATED_CLASSES:
        for (row, column), cell in np.ndenumerate(matrix):
            if cell:
                axes.text(column, row, f"{cell}", ha="center", va="center", fontsize=8)
    if count <= _MAX_TICKED_CLASSES:
        axes.set_xticks(range(count))
        axes.set_yticks(range(count))
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    return figure_of(axes)


def _class_accuracy(numbers: dict[str, Any]) -> Figure:
    values = np.array(numbers["values"], np.float64)
    with_examples = np.flatnonzero(np.isfinite(values).any(axis=0))
    axes = new_axes(None, 9.0, 3.6)
    lines = [_line(f"class {k}", numbers["rounds"], values[:, k]) for k in with_examples]
    draw_lines(axes, lines)
    axes.set_xlabel("round")
    axes.set_ylabel("share predicted right")
    return figure_of(axes)


def _roc(numbers: dict[str, Any]) -> Figure:
    axes = new_axes(None, 5.0, 4.4)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=0.8, label="chance")
    axes.plot(
        numbers["false_positive_rates"],
        numbers["true_positive_rates"],
        color=LINE_COLORS[0],
        label=f"area {numbers['auc']:.4f}",
    )
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.set_aspect("equal")
    axes.legend(loc="lower right")
    return figure_of(axes)


def _residuals(numbers: dict[str, Any]) -> Figure:
    figure = _histogram(numbers, "residual: label - prediction")
    figure.axes[0].axvline(0, color=GREY, linewidth=0.8)
    return figure


def _error_by_label(numbers: dict[str, Any]) -> Figure:
    values, edges = np.array(numbers["values"], np.float64), numbers["edges"]
    axes = new_axes(None, 9.0, 3.8)
    lines = [
        _line(f"{low:.4g} to {high:.4g}", numbers["rounds"], values[:, at])
        for at, (low, high) in enumerate(pairwise(edges))
        if numbers["counts"][at]
    ]
    draw_lines(axes, lines)
    axes.set_xlabel("round")
    axes.set_ylabel("mean absolute error")
    legend = axes.get_legend()
    if legend is not None:
        legend.set_title("label")
    return figure_of(axes)


def _histogram(numbers: dict[str, Any], label: str) -> Figure:
    axes = new_axes(None, 9.0, 3.0)
    axes.stairs(numbers["counts"], numbers["edges"], fill=True, color=LINE_COLORS[0])
    axes.set_xlabel(label)
    axes.set_ylabel("examples")
    axes.set_axisbelow(True)
    return figure_of(axes)


def _line(name: str, rounds: list[int], values: Any) -> Series:
    numbers = np.array(values, np.float64)
    not_finite = np.zeros(len(numbers), np.bool_)
    return Series(name, "", "", np.array(rounds, np.int64), numbers, not_finite)


PICTURES: Final[dict[str, Callable[[dict[str, Any]], Figure]]] = {
    "label_distribution": _label_distribution,
    "metrics": _metrics,
    "feature_importance": _feature_importance,
    "confusion_matrix": _confusion_matrix,
    "class_accuracy": _class_accuracy,
    "roc": _roc,
    "residuals": _residuals,
    "error_by_label": _error_by_label,
}
"""Functions that plot a section from its numbers, by name."""
