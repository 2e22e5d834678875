"""Plots metrics of XGBoost over the rounds, one plot per metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rule_runtime.plotting.figures import figure_of, new_grid, text
from rule_runtime.plotting.lines import draw_lines
from rule_runtime.plotting.series import Series, series_of

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["draw_metrics", "metric_names", "plot_metrics", "split_metric"]

_COLUMNS: Final = 2


def plot_metrics(
    trial: Trial,
    *,
    worker: str | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the metrics of an XGBoost run, one plot per metric.

    Args:
        trial: The trial.
        worker: Only this worker; None for all.
        title: Title; by default, the trial's name.
        ax: Axes that the plots replace; by default, in a new figure.

    Returns:
        The figure; its axes are in the order of the metrics' names.

    Raises:
        ValueError: If no metric was saved.
        InvalidWorker: If there is no such worker.
    """
    names = metric_names(trial)
    if not names:
        raise ValueError(f"no metric was saved in {trial.path} so far")
    lines = series_of(trial, names, None, worker=worker)[1]
    return draw_metrics(lines, title=trial.name if title is None else title, ax=ax)


def draw_metrics(
    lines: Sequence[Series], *, title: str | None = None, ax: Axes | None = None
) -> Figure:
    """Draw metrics, one plot per metric with a line per dataset.

    Args:
        lines: The metrics, at least one.
        title: Title.
        ax: Axes that the plots replace; by default, in a new figure.
    """
    by_metric: dict[str, list[Series]] = {}
    for line in lines:
        by_metric.setdefault(split_metric(line.tensor)[1], []).append(line)
    columns = min(_COLUMNS, len(by_metric))
    rows = -(-len(by_metric) // columns)
    figure = new_grid(ax, 9.0 if columns > 1 else 7.0, 3.4 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for unused in grid[len(by_metric) :]:
        unused.remove()
    for axes, (metric, of_metric) in zip(grid, sorted(by_metric.items()), strict=False):
        draw_lines(axes, of_metric)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel(text(metric))
        axes.set_xlabel("round")
    if title is not None:
        figure.suptitle(text(title), x=0.01, ha="left")
    return figure_of(grid[0])


def metric_names(trial: Trial) -> list[str]:
    """Return the names of the metrics that were saved, sorted."""
    return [name for name in trial.select_tensors(collection="metrics") if split_metric(name)[0]]


def split_metric(name: str) -> tuple[str, str]:
    """Return dataset and metric of `{data}-{metric}`; an empty dataset for other names.

    Args:
        name: Name of a tensor, e.g. `validation-rmse`.
    """
    at = name.rstrip("-").rfind("-")  # `ndcg@3-` is a metric
    return name[: max(at, 0)], name[at + 1 :]
