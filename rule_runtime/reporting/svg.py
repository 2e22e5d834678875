"""Embeds matplotlib figures as SVG in a page, in the colour of its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["inline_svg"]

_INK: Final = "#010203"
"""Placeholder for the page's text colour; nothing else is drawn in it."""

_GROUND: Final = "#fefdfc"
"""Placeholder for the page's background colour."""

_STYLE: Final[dict[Any, Any]] = {
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.labelcolor": _INK,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#8c8c8c",
    "legend.edgecolor": "none",
    "legend.facecolor": _GROUND,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "stepwatch",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_NUMBERED_ID: Final = re.compile(r' id="[A-Za-z0-9]+_\d+"')


def inline_svg(draw: Callable[[], Figure]) -> str:
    """Return a figure as an SVG element with real text and a transparent background.

    Legends have the background `--ground`, a variable of the page's style sheet.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        target = StringIO()
        draw().savefig(target, format="svg", metadata=_NO_METADATA)
    written = target.getvalue()
    element = written[written.index("<svg") :]
    # Elements of several figures would share ids; only clips and markers are referenced.
    element = _NUMBERED_ID.sub("", element)
    return element.replace(_INK, "currentColor").replace(_GROUND, "var(--ground)")
