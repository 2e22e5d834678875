"""Plots tensors over the steps, one line per run, tensor, mode and worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hook_layer.format.modes import ModeKeys
from rule_runtime.plotting.arguments import OneTensor, tensor_list
from rule_runtime.plotting.figures import GREY, LINE_COLORS, figure_of, new_axes, text
from rule_runtime.plotting.series import Series, series_of
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.tidy_table import VALUE

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial
    from rule_runtime.trial.trial_collections import TrialCollection

__all__ = ["MAX_NAMED_LINES", "draw_lines", "plot_collection", "plot_tensors"]

MAX_NAMED_LINES: Final = 20
"""Maximum number of lines with their own colour and name; the others are grey."""

_MAX_GREY_LINES: Final = 500
_MAX_POINTS_WITH_MARKERS: Final = 40
_MAX_LEGEND_INSIDE: Final = 5
_DEFAULT_COLLECTIONS: Final = ("losses", "metrics")
_UNITS: Final = {
    "value": "value",
    "size": "number of elements",
    "nan": "number of NaN",
    "inf": "number of infinite elements",
    "min": "smallest element",
    "max": "largest element",
    "mean": "mean of the elements",
    "std": "standard deviation of the elements",
    "abs_mean": "mean magnitude of the elements",
    "l1": "sum of magnitudes (l1)",
    "l2": "Euclidean norm (l2)",
}


def plot_tensors(
    trial: Trial | Sequence[Trial],
    tensors: OneTensor | Iterable[OneTensor] | None = None,
    *,
    regex: str | Sequence[str] | None = None,
    collection: str | TrialCollection | None = None,
    statistic: str | None = None,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
    log: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot a statistic of tensors over the steps; by default, of the losses.

    If there are more than 20 lines, those with NaN or Inf, then the first by name, have a colour
    and a name; the others are grey. A step with an unknown number is a gap, with a red cross if the
    tensor had NaN or Inf.

    Args:
        trial: The trial, or several: then the names of lines begin with that of their trial.
        tensors: Tensors, or their names.
        regex: Also tensors whose name matches one of these regular expressions.
        collection: Also tensors of this collection; with `regex`, those that match both.
        statistic: `value`, or one of size nan inf min max mean std abs_mean l1 l2. None for the
            value of one-element tensors, `abs_mean` of gradients and the mean of others, or another
            saved statistic; the same for all trials.
        mode: Only steps of this mode, counted in it; GLOBAL for all, counted globally.
        worker: Only this worker; None for all.
        log: True for a logarithmic scale.
        title: Title; by default, the name of a single trial.
        ax: Axes to draw on; by default, those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If no tensor of a trial matches, or there is no such statistic, or it was not
            saved.
        TensorUnavailable: If a named tensor does not exist.
        InvalidWorker: If there is no such worker.
    """
    mode = as_mode(mode)
    trials = trial if isinstance(trial, Sequence) else [trial]
    lines: list[Series] = []
    for each in trials:
        names = _chosen(each, tensors, regex, collection)
        statistic, found = series_of(each, names, statistic, mode=mode, worker=worker)
        lines += [replace(line, run=each.name) for line in found]
    axes = new_axes(ax)
    draw_lines(axes, lines, log=log)
    axes.set_ylabel(_UNITS[statistic or VALUE])
    modes = {line.mode for line in lines} if mode is ModeKeys.GLOBAL else {mode.name}
    axes.set_xlabel("step, of all modes" if len(modes) > 1 else _step_of(mode))
    if title is None and len(trials) == 1:
        title = trials[0].name
    axes.set_title(text(title or ""), loc="left")
    return figure_of(axes)


def plot_collection(
    trial: Trial,
    name: str,
    regex: str = ".*",
    *,
    statistic: str | None = None,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
    log: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the tensors of a collection whose names match a regular expression.

    Args:
        trial: The trial.
        name: Name of the collection.
        regex: The regular expression.
        statistic: See `plot_tensors`.
        mode: See `plot_tensors`.
        worker: See `plot_tensors`.
        log: True for a logarithmic scale.
        title: Title; by default, the names of the trial and the collection.
        ax: Axes to draw on; by default, those of a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If the collection has no such tensor, or there is no such statistic or it was
            not saved.
        InvalidWorker: If there is no such worker.
    """
    chosen = trial.select_tensors(regex, name)
    if not chosen:
        count = len(trial.select_tensors(collection=name))
        raise ValueError(
            f"no tensor to draw: {count} were saved of the collection {name!r}, and {regex!r} is "
            "found in the name of none"
        )
    return plot_tensors(
        trial,
        chosen,
        statistic=statistic,
        mode=mode,
        worker=worker,
        log=log,
        title=f"{trial.name}: {name}" if title is None else title,
        ax=ax,
    )


def draw_lines(axes: Axes, lines: Sequence[Series], *, log: bool = False) -> None:
    """Draw lines, and a legend that explains hidden ones.

    Args:
        axes: The axes.
        lines: The lines, in the order of the legend.
        log: True for a logarithmic scale.
    """
    known = [line for line in lines if line.is_known]
    ordered = sorted(known, key=lambda line: not line.not_finite.any())
    named = sorted(ordered[:MAX_NAMED_LINES], key=known.index)
    handles = _draw_grey(axes, ordered[MAX_NAMED_LINES:])
    for at, line in enumerate(named):
        numbers = np.where(np.isfinite(line.numbers), line.numbers, np.nan)
        (drawn,) = axes.plot(
            line.steps,
            numbers,
            color=LINE_COLORS[at % len(LINE_COLORS)],
            linestyle="-" if at < len(LINE_COLORS) else "--",
            marker="." if len(line.steps) <= _MAX_POINTS_WITH_MARKERS else "",
            label=_label(line, lines),
        )
        handles.insert(at, drawn)
    if len(known) < len(lines):
        label = f"{len(lines) - len(known)} more: it was not saved"
        handles.append(Line2D([], [], linestyle="", label=label))
    handles += _mark_gaps(axes, lines)
    if log:
        axes.set_yscale("log")
        handles += _note_not_positive(lines)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if not handles:
        axes.text(0.5, 0.5, "nothing was saved so far", ha="center", transform=axes.transAxes)
    elif len(handles) > _MAX_LEGEND_INSIDE:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small")
    else:
        axes.legend(handles=handles, fontsize="small")


def _chosen(
    trial: Trial,
    tensors: OneTensor | Iterable[OneTensor] | None,
    regex: str | Sequence[str] | None,
    collection: str | TrialCollection | None,
) -> list[str]:
    if tensors is None and regex is None and collection is None:
        for default in _DEFAULT_COLLECTIONS:
            found = trial.select_tensors(collection=default)
            if found:
                return found
        raise ValueError(
            f"no loss was saved in {trial.path} so far; choose tensors= or regex=, e.g. of "
            f"{', '.join(trial.tensor_names()[:5]) or 'those that come'}"
        )
    names = {trial.tensor(name).name for name in tensor_list(tensors)}
    if regex is not None or collection is not None:
        names.update(trial.select_tensors(regex, collection))
    if not names:
        raise ValueError(f"no tensor saved in {trial.path} matches {regex or collection!r}")
    return sorted(names)


def _step_of(mode: ModeKeys) -> str:
    return "step" if mode is ModeKeys.GLOBAL else f"step of {mode.name}"


def _label(line: Series, lines: Sequence[Series]) -> str:
    is_of_runs = len({other.run for other in lines}) > 1
    parts = [f"{line.run}:", line.tensor] if is_of_runs else [line.tensor]
    if len({other.mode for other in lines}) > 1:
        parts.append(line.mode)
    if len({other.worker for other in lines}) > 1:
        parts.append(line.worker)
    return text(" ".join(parts))


def _draw_grey(axes: Axes, lines: Sequence[Series]) -> list[Line2D]:
    if not lines:
        return []
    drawn = lines[:_MAX_GREY_LINES]
    points = [np.column_stack([line.steps, line.numbers]) for line in drawn]
    axes.add_collection(LineCollection(points, colors=GREY, linewidths=0.6, alpha=0.5))
    hidden = len(lines) - len(drawn)
    label = f"{len(drawn)} more" + (f"; {hidden} not drawn" if hidden else "")
    return [Line2D([], [], color=GREY, linewidth=0.6, label=label)]


def _mark_gaps(axes: Axes, lines: Sequence[Series]) -> list[Line2D]:
    """Mark the steps at which a tensor had NaN or Inf at the bottom of the plot."""
    steps = [line.steps[line.not_finite] for line in lines]
    gaps = np.unique(np.concatenate(steps)) if steps else np.empty(0)
    if not len(gaps):
        return []
    return axes.plot(
        gaps,
        np.full(len(gaps), 0.02),
        "x",
        color="#d62728",
        markersize=5,
        transform=axes.get_xaxis_transform(),
        label="not finite",
        clip_on=False,
    )


def _note_not_positive(lines: Sequence[Series]) -> list[Line2D]:
    count = sum(int(np.count_nonzero(line.numbers <= 0)) for line in lines)
    if not count:
        return []
    return [Line2D([], [], linestyle="", label=f"{count} numbers <= 0 not shown")]
