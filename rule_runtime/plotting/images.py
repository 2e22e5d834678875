"""Plots activations and kernels as images, one row per step.

Shape legend: N = examples, C = channels, H, W = height and width, O, I = channels out and in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hook_layer.format.modes import ModeKeys
from rule_runtime.plotting.arguments import OneTensor, check_count, step_list, tensor_name
from rule_runtime.plotting.figures import figure_of, new_grid, text
from rule_runtime.trial.modes import Mode, as_mode

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["plot_activations", "plot_kernels"]

_MAX_STEPS: Final = 6
_MAX_IMAGES: Final = 12
_MAX_SIDE: Final = 2048
_DIMENSIONS: Final = (2, 3, 4)

_Images = tuple[list[npt.NDArray[Any]], int, str]
"""Images [H, W], their total number, and the selection along the other axes."""


class _Pictures(NamedTuple):
    """Rows of images by step, with the name of the tensor and the meaning of the columns."""

    tensor: str
    rows: dict[int, _Images]
    what: str
    is_signed: bool = False


def plot_activations(
    trial: Trial,
    tensor: OneTensor,
    *,
    steps: int | Iterable[int] | None = None,
    example: int = 0,
    channels_last: bool = False,
    max_channels: int = _MAX_IMAGES,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the outputs of a layer as images: a row for each step, a column for each channel.

    Args:
        trial: The trial.
        tensor: A tensor or its name, [N, C, H, W], [N, H, W] or [H, W].
        steps: One or more steps, counted in `mode`; None for six, evenly between the first and the
            last with a saved value.
        example: Index of the example in the batch.
        channels_last: True for a tensor [N, H, W, C].
        max_channels: Maximum number of plotted channels.
        mode: The mode.
        worker: Name of the worker; None for the first one by name.
        title: Title; by default, the tensor's name.
        ax: Axes that the images replace; by default, in a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If the value was not saved at any step, or is not a batch of images.
        TensorUnavailable: If there is no such tensor.
        TensorUnavailableForStep: If the value was not saved at a requested step.
    """
    name, mode = tensor_name(tensor), as_mode(mode)
    check_count("max_channels", max_channels)

    def images(value: npt.NDArray[Any]) -> _Images:
        chosen = value
        if value.ndim > 2:  # noqa: PLR2004
            if not -len(value) <= example < len(value):
                raise ValueError(f"{name}: there is no example {example} among {len(value)}")
            chosen = value[example]
        if chosen.ndim == 3 and channels_last:  # noqa: PLR2004
            chosen = np.moveaxis(chosen, -1, 0)
        planes = chosen if chosen.ndim == 3 else chosen[None]  # noqa: PLR2004
        message = f"example {example} of {len(value)}" if value.ndim > 2 else ""  # noqa: PLR2004
        return list(planes[:max_channels]), len(planes), message

    values = _values(trial, name, steps, mode, worker)
    pictures = _Pictures(name, {at: images(v) for at, v in values.items()}, "channel")
    return _grid(trial, pictures, mode, title, ax)


def plot_kernels(
    trial: Trial,
    tensor: OneTensor,
    *,
    steps: int | Iterable[int] | None = None,
    channel: int = 0,
    max_kernels: int = _MAX_IMAGES,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the kernels of a convolution: a row for each step, a column for each kernel.

    All images share one colour scale, white at 0, so that their growth is visible. Weights of a
    linear layer [O, I] are one image.

    Args:
        trial: The trial.
        tensor: A tensor or its name, [O, I, H, W], [O, I, W] or [O, I].
        steps: One or more steps, counted in `mode`; None for six, evenly between the first and the
            last with a saved value.
        channel: Index of the input channel.
        max_kernels: Maximum number of plotted kernels.
        mode: The mode.
        worker: Name of the worker; None for the first one by name.
        title: Title; by default, the tensor's name.
        ax: Axes that the images replace; by default, in a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If the value was not saved at any step, or is not a set of kernels.
        TensorUnavailable: If there is no such tensor.
        TensorUnavailableForStep: If the value was not saved at a requested step.
    """
    name, mode = tensor_name(tensor), as_mode(mode)
    check_count("max_kernels", max_kernels)

    def images(value: npt.NDArray[Any]) -> _Images:
        if value.ndim != 4:  # noqa: PLR2004
            planes = value[None] if value.ndim == 2 else value  # noqa: PLR2004
            return list(planes[:max_kernels]), len(planes), ""
        if not -value.shape[1] <= channel < value.shape[1]:
            raise ValueError(f"{name}: there is no channel {channel} among {value.shape[1]}")
        message = f"channel in {channel} of {value.shape[1]}"
        return list(value[:max_kernels, channel]), len(value), message

    values = _values(trial, name, steps, mode, worker)
    rows = {at: images(v) for at, v in values.items()}
    return _grid(trial, _Pictures(name, rows, "kernel", is_signed=True), mode, title, ax)


def _values(
    trial: Trial,
    tensor: str,
    steps: int | Iterable[int] | None,
    mode: ModeKeys,
    worker: str | None,
) -> dict[int, npt.NDArray[Any]]:
    found = trial.tensor(tensor)
    chosen = _default_steps(trial, tensor, mode, worker) if steps is None else step_list(steps)
    values = {step: np.asarray(found.value(step, mode, worker)) for step in chosen}
    for value in values.values():
        if value.ndim not in _DIMENSIONS or value.dtype.kind not in "biuf" or not value.size:
            raise ValueError(
                f"{tensor} has the shape {list(value.shape)} and the type {value.dtype}, and "
                f"cannot be drawn as images"
            )
    return values


def _default_steps(trial: Trial, tensor: str, mode: ModeKeys, worker: str | None) -> list[int]:
    steps = sorted(
        {
            file.step if mode is ModeKeys.GLOBAL else file.index.mode_step
            for file in trial.step_files(mode, worker)
            if file.index is not None and any(row.name == tensor for row in file.index.locations)
        }
    )
    if not steps:
        raise ValueError(
            f"the value of {tensor} was not saved so far; save_raw_tensor=True saves values"
        )
    picked = np.linspace(0, len(steps) - 1, min(len(steps), _MAX_STEPS)).round().astype(int)
    return [steps[at] for at in picked]


def _grid(
    trial: Trial, pictures: _Pictures, mode: ModeKeys, title: str | None, ax: Axes | None
) -> Figure:
    tensor, rows, what, is_signed = pictures
    columns = max(len(images) for images, _, _ in rows.values())
    low, high = _color_range([image for images, _, _ in rows.values() for image in images])
    if is_signed:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    colors = colormaps["RdBu_r" if is_signed else "viridis"].with_extremes(bad="#ff00ff")
    figure = new_grid(ax, min(1.0 * columns + 2.2, 14.0), min(1.05 * len(rows) + 1.0, 40.0))
    grid = figure.subplots(len(rows), columns, squeeze=False)
    drawn = None
    for row, (step, (images, _, _)) in zip(grid, rows.items(), strict=True):
        for at, axes in enumerate(row):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_frame_on(False)
            if at < len(images):
                image = np.where(np.isfinite(images[at]), images[at], np.nan)
                drawn = axes.imshow(_thinned(image), cmap=colors, vmin=low, vmax=high)
        row[0].set_ylabel(f"{step}", rotation=0, ha="right", va="center")
    for at, axes in enumerate(grid[0]):
        axes.set_title(f"{at}", fontsize="small")
    if drawn is not None:
        figure.colorbar(drawn, ax=grid, shrink=0.8, pad=0.02)
    _, total, chosen = next(iter(rows.values()))
    notes = [chosen, f"{columns} of {total} {what}s" if total > columns else "", "pink: not finite"]
    if all(np.isfinite(image).all() for images, _, _ in rows.values() for image in images):
        notes.pop()
    note = ", ".join(filter(None, notes))
    figure.suptitle(
        text(tensor if title is None else title) + (f" ({note})" if note else ""), x=0.01, ha="left"
    )
    figure.supylabel("step" if mode is ModeKeys.GLOBAL else f"step of {mode.name}")
    figure.supxlabel(f"{what} (numbers above the columns), {text(trial.name)}", fontsize="small")
    return figure_of(grid[0][0])


def _color_range(images: Sequence[npt.NDArray[Any]]) -> tuple[float, float]:
    finite = [image[np.isfinite(image)] for image in images]
    finite = [numbers for numbers in finite if numbers.size]
    if not finite:
        return -1.0, 1.0
    low = min(float(numbers.min()) for numbers in finite)
    high = max(float(numbers.max()) for numbers in finite)
    return (low, high) if low < high else (low - 1, high + 1)


def _thinned(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an image with at most as many rows and columns as can be seen."""
    return image[tuple(slice(None, None, -(-side // _MAX_SIDE) or 1) for side in image.shape)]
