"""Draws curves as SVG in a page without a drawing library.

The plot fills the available width, and its texts keep their size: shapes are in a nested picture
that is stretched, and texts are placed by percentages. Colours are CSS classes, so the page can
style them for light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np

from rule_runtime.reporting.axes import Axis, number_text
from rule_runtime.reporting.display_text import shown_text
from rule_runtime.reporting.pixel_columns import extreme_places

__all__ = ["NUM_COLORS", "Line", "line_chart"]

NUM_COLORS: Final = 8
"""Number of line colours; the ninth line repeats the first colour."""

_UNITS: Final = 1000
_MAX_BUCKETS: Final = 300
"""Number of columns of a plot; each shows its smallest and largest number."""
_MAX_DOTS: Final = 40
_MIN_LOG_RANGE: Final = 1e3


@dataclass(frozen=True)
class Line:
    """A curve over increasing steps; None stands for a non-finite number."""

    name: str
    steps: Sequence[int]
    numbers: Sequence[float | None]
    color: int = 0
    is_dashed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON."""
        return {"name": self.name, "steps": list(self.steps), "values": list(self.numbers)}


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    threshold: float | None = None,
    at: int | None = None,
) -> str:
    """Return curves over the steps as HTML; a wide range gets a logarithmic axis.

    `label` is the alternative text. A horizontal line is drawn at `threshold`, and a vertical line
    at the step `at`.
    """
    finite = [n for line in lines for n in line.numbers if n is not None]
    levels = [*finite, *([] if threshold is None else [threshold])]
    is_log = bool(levels) and min(levels) > 0 and max(levels) / min(levels) >= _MIN_LOG_RANGE
    across = Axis.over([float(s) for line in lines for s in line.steps], max_ticks=4, is_tight=True)
    upward = Axis.over(levels, is_log=is_log)
    curves = "".join(_curve(line, across, upward) for line in lines)
    stretched = f'viewBox="0 0 {_UNITS} {_UNITS}" preserveAspectRatio="none"'
    parts = [
        f'<svg class="plot" role="img" aria-label="{_safe(label)}">',
        _grid(across, upward),
        f'<svg {stretched} width="100%" height="100%">{curves}</svg>',
        *(_dots(line, across, upward) for line in lines),
        _gaps(lines, across),
        _guides(across, upward, threshold, at),
        '<text class="tick" x="100%" y="100%" dy="33" text-anchor="end">step</text>',
        "</svg>",
    ]
    return f'<div class="chart">{"".join(parts)}</div>{_legend(lines)}'


def _grid(across: Axis, upward: Axis) -> str:
    parts = []
    for tick in upward.ticks:
        y = _percent(1 - upward.share(tick))
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        text = number_text(tick)
        parts.append(f'<text class="tick" x="-7" y="{y}" dy="4" text-anchor="end">{text}</text>')
    for tick in across.ticks:
        x = _percent(across.share(tick))
        text = number_text(tick)
        parts.append(
            f'<text class="tick" x="{x}" y="100%" dy="17" text-anchor="middle">{text}</text>'
        )
    return "".join([*parts, '<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>'])


def _curve(line: Line, across: Axis, upward: Axis) -> str:
    """Return the pieces of a curve between its gaps."""
    pieces: list[list[tuple[int, int]]] = [[]]
    for step, number in zip(line.steps, line.numbers, strict=True):
        if number is None:
            pieces.append([])
        else:
            x, y = across.share(step) * _UNITS, (1 - upward.share(number)) * _UNITS
            pieces[-1].append((round(x), round(y)))
    dashed = " dashed" if line.is_dashed else ""
    drawn = (" ".join(f"{x},{y}" for x, y in _thinned(piece)) for piece in pieces if len(piece) > 1)
    return "".join(
        f'<polyline class="line c{line.color % NUM_COLORS}{dashed}" points="{points}"/>'
        for points in drawn
    )


def _thinned(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the lowest and highest point of each column of the plot, in order."""
    places = np.array(points, np.int64)
    kept = extreme_places(places[:, 0], places[:, 1].astype(np.float64), _MAX_BUCKETS)
    return [points[at] for at in kept]


def _dots(line: Line, across: Axis, upward: Axis) -> str:
    """Return a dot for each number of a short curve, with the number as tooltip."""
    points = [(s, n) for s, n in zip(line.steps, line.numbers, strict=True) if n is not None]
    is_short = len(points) <= _MAX_DOTS
    alone = {
        at
        for at, (before, number, after) in enumerate(
            zip([None, *line.numbers], line.numbers, [*line.numbers[1:], None], strict=False)
        )
        if number is not None and before is None and after is None
    }
    if not is_short:
        points = [(line.steps[at], line.numbers[at] or 0.0) for at in sorted(alone)[:_MAX_DOTS]]
    return "".join(
        f'<circle class="dot c{line.color % NUM_COLORS}" cx="{_percent(across.share(step))}" '
        f'cy="{_percent(1 - upward.share(number))}" r="2.5"><title>{_safe(line.name)}: step '
        f"{step}: {number:.6g}</title></circle>"
        for step, number in points
    )


def _gaps(lines: Sequence[Line], across: Axis) -> str:
    """Return crosses at steps with a non-finite number, as many as do not overlap."""
    steps = {
        s for line in lines for s, n in zip(line.steps, line.numbers, strict=True) if n is None
    }
    places = {_percent(across.share(step)): step for step in sorted(steps, reverse=True)}
    return "".join(
        f'<text class="bad" x="{place}" y="100%" dy="-5" text-anchor="middle">\u00d7'
        f"<title>not finite at step {step}</title></text>"
        for place, step in places.items()
    )


def _guides(across: Axis, upward: Axis, threshold: float | None, at: int | None) -> str:
    parts = []
    if threshold is not None and math.isfinite(threshold):
        y = _percent(1 - upward.share(threshold))
        parts.append(f'<line class="threshold" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        is_high = upward.share(threshold) > 0.5  # noqa: PLR2004 - the middle
        parts.append(
            f'<text class="tick marked" x="100%" y="{y}" dy="{14 if is_high else -5}" '
            f'text-anchor="end">threshold {number_text(threshold)}</text>'
        )
    if at is not None:
        x = _percent(across.share(at))
        anchor = "end" if across.share(at) > 0.5 else "start"  # noqa: PLR2004 - the middle
        parts.append(f'<line class="found" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
        parts.append(
            f'<text class="tick marked" x="{x}" y="0" dy="11" dx="{-5 if anchor == "end" else 5}" '
            f'text-anchor="{anchor}">found at step {at}</text>'
        )
    return "".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    items = [
        f'<li><svg class="swatch" aria-hidden="true"><line class="line c{line.color % NUM_COLORS}'
        f'{" dashed" if line.is_dashed else ""}" x1="0" x2="22" y1="6" y2="6"/></svg>'
        f"{_safe(line.name)}</li>"
        for line in lines
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _safe(text: str) -> str:
    return escape(shown_text(text))
