"""Creates figures that pyplot does not keep, and escapes their texts."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase, SubFigure

__all__ = [
    "GREY",
    "LINE_COLORS",
    "StandaloneFigure",
    "figure_of",
    "new_axes",
    "new_figure",
    "new_grid",
    "text",
]

LINE_COLORS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#7f5fc4",
    "#8c564b",
    "#7a9a01",
    "#d62728",
)
"""Ten colours that colour-blind readers can distinguish, on light and on dark backgrounds."""

GREY: Final = "#8c8c8c"

_MAX_LABEL_LENGTH: Final = 60

_WITHOUT_WINDOWS: Final = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
"""Backends of matplotlib without windows."""


class StandaloneFigure(Figure):
    """A figure that notebooks show although pyplot does not know it.

    In a script, call its method `show`; `pyplot.show` shows only figures of pyplot.
    """

    def show(self, warn: bool = True) -> None:
        """Show the figure in a window, and wait until it is closed if pyplot does so.

        Open figures of pyplot are shown as well. Without a window system, it logs a warning.

        Args:
            warn: False for no warning.
        """
        from matplotlib import pyplot as plt  # noqa: PLC0415 - finds out what windows there are

        backend = plt.get_backend()
        if backend.lower() in _WITHOUT_WINDOWS:
            if warn:
                warnings.warn(
                    f"the figure cannot be shown: matplotlib's backend {backend!r} has no windows; "
                    'write it by figure.savefig("figure.png")',
                    stacklevel=2,
                )
            return
        manager: Any = getattr(self.canvas, "manager", None)
        if manager is None or not plt.fignum_exists(manager.num):
            # Only pyplot creates windows: that of an empty figure gets this figure.
            canvas = plt.figure(figsize=self.get_size_inches(), dpi=self.dpi).canvas
            canvas.figure = self
            self.set_canvas(canvas)
        plt.show()

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        self.savefig(data, format="png", dpi=self.dpi)
        return data.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure.

    Args:
        width: Width in inches.
        height: Height in inches.
    """
    return StandaloneFigure(figsize=(width, height), layout="constrained")


def new_axes(ax: Axes | None, width: float = 9.0, height: float = 4.5) -> Axes:
    """Return axes to draw on: the given ones, otherwise those of a new figure.

    Args:
        ax: The given axes; may be None.
        width: Width in inches.
        height: Height in inches.
    """
    if ax is None:
        ax = new_figure(width, height).subplots()
        ax.grid(visible=True, alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return ax


def new_grid(ax: Axes | None, width: float, height: float) -> FigureBase:
    """Return a container for several axes: a new figure, or the place of the given axes.

    Args:
        ax: The given axes, which are removed; may be None.
        width: Width in inches.
        height: Height in inches.

    Raises:
        ValueError: If the axes were not created by `subplots` or a similar function.
    """
    if ax is None:
        return new_figure(width, height)
    place = ax.get_subplotspec()
    if place is None:
        raise ValueError(
            "ax must be created by subplots() or add_subplot(), because several plots replace it"
        )
    figure: Any = ax.figure
    ax.remove()
    part: FigureBase = figure.add_subfigure(place)
    return part


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes belong to."""
    figure: Any = ax.get_figure(root=True) if _knows_root() else ax.get_figure()
    if isinstance(figure, SubFigure):  # matplotlib before 3.10 returns it
        figure = figure.figure
    if not isinstance(figure, Figure):
        raise TypeError("the axes belong to no figure")
    return figure


def text(value: object) -> str:
    """Return a text that matplotlib shows literally; shortens the middle of a long text.

    Names come from files: a dollar sign must not start a formula, and an underscore must not hide a
    line from the legend.
    """
    shown = "".join(c if c.isprintable() else "?" for c in str(value))
    if len(shown) > _MAX_LABEL_LENGTH:
        half = _MAX_LABEL_LENGTH // 2
        shown = f"{shown[:half]}...{shown[-half + 3 :]}"
    if shown.startswith("_"):
        shown = f" {shown}"
    return shown.replace("$", r"\$")


def _knows_root() -> bool:
    from matplotlib import __version_info__  # noqa: PLC0415

    return __version_info__ >= (3, 10)
