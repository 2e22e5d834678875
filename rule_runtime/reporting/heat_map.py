"""Draws a heat map as SVG in a page: rows over steps, coloured by order of magnitude.

Shape legend: R = rows, C = columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.reporting.axes import Axis, number_text
from rule_runtime.reporting.display_text import shown_text

__all__ = ["HeatMap", "heat_map"]

_NUM_LEVELS: Final = 12
"""CSS classes `h0` to `h11`."""
_NONE, _ZERO, _BAD = -1, _NUM_LEVELS, _NUM_LEVELS + 1
_CLASSES: Final = {_ZERO: "hz", _BAD: "hx"}
_FEW_ROWS: Final = 8
_MIN_RANGE: Final = 10.0
_OUTERMOST: Final = 0.02
"""Share of the numbers at either end that get the extreme colour."""
_NUM_LEGEND_TEXTS: Final = 4


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Numbers of rows over steps.

    Attributes:
        rows: Names of the rows [R].
        first_step: The first step of the first column.
        last_step: The last step of the last column.
        values: The numbers [R, C], at least zero; NaN if missing, Inf if not finite.
        what: Short description of the numbers.
        note: How the numbers were computed.
        members: The tensors of each row.
    """

    rows: Sequence[str]
    first_step: int
    last_step: int
    values: npt.NDArray[np.float64]
    what: str = ""
    note: str = ""
    members: Sequence[Sequence[str]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON; `not_finite` lists the non-finite cells (row, column)."""
        is_bad = np.isinf(self.values)
        plain = [
            [None if not math.isfinite(cell) else float(f"{cell:.6g}") for cell in row]
            for row in self.values
        ]
        return {
            "what": self.what,
            "note": self.note,
            "rows": list(self.rows),
            "first_step": self.first_step,
            "last_step": self.last_step,
            "values": plain,
            "not_finite": np.argwhere(is_bad).tolist(),
        }


def heat_map(data: HeatMap, *, label: str) -> str:
    """Return a heat map with its legend as HTML; `label` is the alternative text."""
    levels, scale = _levels(data.values)
    height = 22 if len(data.rows) <= _FEW_ROWS else 15
    num_columns = max(data.values.shape[1], 1)
    names = "".join(_row_name(name) for name in data.rows)
    total = height * len(data.rows)
    tall = "rows tall" if height > 15 else "rows"  # noqa: PLR2004 - the style has both heights
    return (
        f'<div class="heat"><ol class="{tall}">{names}</ol>'
        f'<div class="chart cells"><svg class="plot" height="{total}" role="img" '
        f'aria-label="{escape(shown_text(label))}">'
        f'<svg viewBox="0 0 {num_columns} {max(len(data.rows), 1)}" preserveAspectRatio="none" '
        f'width="100%" height="100%" shape-rendering="crispEdges">{_cells(levels)}</svg>'
        f"{_tips(data, height)}{_steps(data)}</svg></div></div>{_legend(scale, levels)}"
    )


def _levels(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], Axis]:
    """Return the colour of each cell [R, C], and the colour scale."""
    positive = values[np.isfinite(values) & (values > 0)]
    ends = (_OUTERMOST, 1 - _OUTERMOST)
    low, high = np.quantile(positive, ends).tolist() if positive.size else (0.1, 1.0)
    if high / low < _MIN_RANGE:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = middle / math.sqrt(_MIN_RANGE), middle * math.sqrt(_MIN_RANGE)
    levels = np.full(values.shape, _NONE, np.int64)
    with np.errstate(all="ignore"):
        share = (np.log10(values) - math.log10(low)) / (math.log10(high) - math.log10(low))
        usable = np.where(np.isfinite(share), share, 0.0)
        index = np.clip((usable * _NUM_LEVELS).astype(np.int64), 0, _NUM_LEVELS - 1)
    is_number = np.isfinite(values)
    levels[is_number] = index[is_number]
    levels[values == 0] = _ZERO
    levels[np.isinf(values)] = _BAD
    return levels, Axis(float(low), float(high), is_log=True, ticks=())


def _cells(levels: npt.NDArray[np.int64]) -> str:
    """Return one path per colour, made of runs of equal cells in a row."""
    pieces: dict[int, list[str]] = {}
    for row, cells in enumerate(levels.tolist()):
        start = 0
        for at in range(1, len(cells) + 1):
            if at == len(cells) or cells[at] != cells[start]:
                if cells[start] != _NONE:
                    width = at - start
                    pieces.setdefault(cells[start], []).append(
                        f"M{start} {row}h{width}v1h-{width}z"
                    )
                start = at
    return "".join(
        f'<path class="{_CLASSES.get(level, f"h{level}")}" d="{"".join(runs)}"/>'
        for level, runs in sorted(pieces.items())
    )


def _tips(data: HeatMap, height: int) -> str:
    parts = []
    for row, name in enumerate(data.rows):
        numbers = data.values[row]
        finite = numbers[np.isfinite(numbers)]
        message = "nothing" if not finite.size else f"{finite.min():.3g} to {finite.max():.3g}"
        if np.isinf(numbers).any():
            message += ", not finite at times"
        parts.append(
            f'<rect class="tip" x="0" y="{row * height}" width="100%" height="{height}">'
            f"<title>{escape(shown_text(name))}: {message}</title></rect>"
        )
    return "".join(parts)


def _steps(data: HeatMap) -> str:
    across = Axis.over([data.first_step, data.last_step], max_ticks=4, is_tight=True)
    ticks = "".join(
        f'<text class="tick" x="{100 * across.share(tick):.4g}%" y="100%" dy="17" '
        f'text-anchor="middle">{number_text(tick)}</text>'
        for tick in across.ticks
    )
    return f'{ticks}<text class="tick" x="100%" y="100%" dy="33" text-anchor="end">step</text>'


def _row_name(name: str) -> str:
    safe = escape(shown_text(name))
    return f'<li title="{safe}"><bdi>{safe}</bdi></li>'


def _legend(scale: Axis, levels: npt.NDArray[np.int64]) -> str:
    swatches = "".join(f'<i class="h{level}"></i>' for level in range(_NUM_LEVELS))
    numbers = np.geomspace(scale.low, scale.high, _NUM_LEGEND_TEXTS)
    labels = [number_text(float(f"{number:.1e}")) for number in numbers]
    labels[0], labels[-1] = f"\u2264 {labels[0]}", f"\u2265 {labels[-1]}"
    texts = "".join(f"<b>{text}</b>" for text in labels)
    others = "".join(
        f'<span><i class="{_CLASSES[level]}"></i> {text}</span>'
        for level, text in ((_ZERO, "zero"), (_BAD, "not finite"))
        if (levels == level).any()
    )
    return (
        f'<div class="scale"><div><div class="ramp">{swatches}</div>'
        f'<div class="ramp-texts">{texts}</div></div>{others}</div>'
    )
