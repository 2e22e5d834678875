"""Plots feature importances and SHAP values of an XGBoost model.

Shape legend: N = rows of the data, F = features, K = classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rule_runtime.plotting.arguments import check_count
from rule_runtime.plotting.figures import GREY, LINE_COLORS, figure_of, new_axes, text
from rule_runtime.plotting.xgboost_tensors import (
    IMPORTANCE_TYPES,
    numbers_at,
    shap_values,
)

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = [
    "IMPORTANCE_TYPES",
    "draw_bars",
    "plot_average_shap",
    "plot_feature_importance",
    "plot_full_shap",
]

_MAX_FEATURES: Final = 20
_MAX_POINTS: Final = 2000
_POINT_BINS: Final = 60
_SIGN_COLORS: Final = (LINE_COLORS[0], LINE_COLORS[1])
_SIGN_LABELS: Final = ("lowers the prediction", "raises the prediction")


def plot_feature_importance(
    trial: Trial,
    importance_type: str = "weight",
    *,
    step: int | None = None,
    max_features: int = _MAX_FEATURES,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the importance of the features as bars, the most important at the top.

    Args:
        trial: The trial.
        importance_type: One of `IMPORTANCE_TYPES`.
        step: The round; None for the last saved one.
        max_features: Maximum number of plotted features.
        title: Title; by default, the trial's name and the round.
        ax: Axes to draw on; by default, those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no such type, or it was not saved.
    """
    check_count("max_features", max_features)
    if importance_type not in IMPORTANCE_TYPES:
        raise ValueError(
            f"there is no importance_type {importance_type!r}; valid are "
            f"{', '.join(IMPORTANCE_TYPES)}"
        )
    found, numbers = numbers_at(trial, f"feature_importance/{importance_type}/", step)
    axes = draw_bars(numbers, max_features, ax)
    axes.set_xlabel(f"importance by {importance_type}, share of all")
    _set_title(axes, title, _title(trial, found, max_features, len(numbers)))
    return figure_of(axes)


def plot_average_shap(
    trial: Trial,
    *,
    step: int | None = None,
    max_features: int = _MAX_FEATURES,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the average SHAP value of the features as bars, the largest magnitude at the top.

    The bias is omitted.

    Args:
        trial: The trial.
        step: The round; None for the last saved one.
        max_features: Maximum number of plotted features.
        title: Title; by default, the trial's name and the round.
        ax: Axes to draw on; by default, those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If no SHAP values were saved.
    """
    check_count("max_features", max_features)
    found, numbers = numbers_at(trial, "average_shap/", step)
    numbers.pop("bias", None)
    axes = draw_bars(numbers, max_features, ax, colors=_SIGN_COLORS)
    _name_signs(axes)
    axes.set_xlabel("average SHAP value, in units of the prediction's margin")
    _set_title(axes, title, _title(trial, found, max_features, len(numbers)))
    return figure_of(axes)


def plot_full_shap(
    trial: Trial,
    *,
    step: int | None = None,
    class_index: int = 0,
    max_features: int = _MAX_FEATURES,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the SHAP values of all rows of the data, a swarm of points for each feature.

    The swarm is wide where points are dense. The feature with the largest mean magnitude is at the
    top.

    Args:
        trial: The trial.
        step: The round; None for the last saved one.
        class_index: Index of the class, if the model has several.
        max_features: Maximum number of plotted features.
        title: Title; by default, the trial's name and the round.
        ax: Axes to draw on; by default, those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If no SHAP values were saved, or there is no such class.
    """
    check_count("max_features", max_features)
    found, names, values, num_classes = shap_values(trial, step, class_index)
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:max_features]
    rows = values[:: max(-(-len(values) // _MAX_POINTS), 1)]
    axes = new_axes(ax, 8.0, 1.2 + 0.36 * len(order))
    for at, feature in enumerate(order):
        numbers = rows[:, feature]
        colors = np.where(numbers < 0, *_SIGN_COLORS)
        axes.scatter(numbers, at + _swarm(numbers), s=6, c=colors, alpha=0.6, linewidths=0)
    _label_features(axes, [names[feature] for feature in order])
    _name_signs(axes)
    thinned = f"; {len(rows)} of {len(values)} rows" if len(rows) < len(values) else ""
    axes.set_xlabel(f"SHAP value, in units of the prediction's margin{thinned}")
    of_class = f", class {class_index} of {num_classes}" if num_classes > 1 else ""
    _set_title(axes, title, _title(trial, found, len(order), len(names)) + of_class)
    return figure_of(axes)


def draw_bars(
    numbers: dict[str, float],
    max_features: int = _MAX_FEATURES,
    ax: Axes | None = None,
    *,
    colors: tuple[str, str] = (LINE_COLORS[0], LINE_COLORS[0]),
) -> Axes:
    """Draw a bar for each number, the largest magnitude at the top.

    Args:
        numbers: The numbers by name.
        max_features: Maximum number of bars.
        ax: Axes to draw on; by default, those of a new figure.
        colors: Colours of negative numbers and of the others.
    """
    ordered = sorted(numbers.items(), key=lambda item: (-abs(item[1]), item[0]))[:max_features]
    axes = new_axes(ax, 8.0, 1.2 + 0.3 * len(ordered))
    values = [number for _, number in ordered]
    axes.barh(np.arange(len(ordered)), values, color=[colors[number >= 0] for number in values])
    _label_features(axes, [name for name, _ in ordered])
    return axes


def _label_features(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(np.arange(len(names)), [text(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_axisbelow(True)


def _name_signs(axes: Axes) -> None:
    """Explain the colours beside the axes, because points may fill all of their area."""
    pairs = zip(_SIGN_COLORS, _SIGN_LABELS, strict=True)
    handles = [Patch(color=color, label=label) for color, label in pairs]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small")


def _set_title(axes: Axes, given: str | None, default: str) -> None:
    axes.set_title(default if given is None else text(given), loc="left")


def _title(trial: Trial, step: int, shown: int, total: int) -> str:
    features = f"{shown} of {total} features, " if shown < total else ""
    return f"{text(trial.name)}: {features}round {step}"


def _swarm(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the offset of each point, so that points of similar numbers do not overlap [N]."""
    low, high = float(numbers.min(initial=0)), float(numbers.max(initial=0))
    bins = np.zeros(len(numbers), np.int64)
    if high > low:
        bins = ((numbers - low) / (high - low) * (_POINT_BINS - 1)).astype(np.int64)
    order = np.argsort(bins, kind="stable")
    counts = np.bincount(bins, minlength=_POINT_BINS)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    side = np.where(ranks % 2, 1, -1) * ((ranks + 1) // 2)
    return 0.8 * side / max(int(counts.max(initial=1)), 1)
