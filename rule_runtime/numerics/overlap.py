"""How much two masks overlap, and losses that are one minus that.

Shape legend: B = rows, ... = pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["overlap_of"]

_Numbers = npt.NDArray[np.float64]
_MOST_ELEMENTS: Final = 1 << 20
_CLOSE: Final = 1e-4
_TELLING: Final = 0.01
_SMOOTHING: Final = ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0))
"""What is added above and below the line."""


def overlap_of(outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float) -> str | None:
    """Return which measure of overlap a loss is one minus, or minus; None if it is none.

    Known are Dice, 2 sum(o t) / (sum(o) + sum(t)), and Jaccard, sum(o t) / (sum(o) + sum(t) -
    sum(o t)), of the whole batch or as a mean over its rows, with 1 added below the line, or above
    and below it, or next to nothing. No overlap, or nothing but overlap, tells nothing: what is
    nearly 0 or 1 may be of anything.

    Args:
        outputs: Outputs o [B, ...].
        targets: Targets t [B, ...].
        loss: The loss.
    """
    if outputs.shape != targets.shape or not 1 < targets.size <= _MOST_ELEMENTS:
        return None
    if outputs.dtype.kind not in "fiu" or targets.dtype.kind not in "biuf":
        return None
    o = outputs.astype(np.float64).reshape(len(outputs), -1)
    t = targets.astype(np.float64).reshape(len(targets), -1)
    of_rows = (o * t).sum(axis=1), (o + t).sum(axis=1)
    of_batch = of_rows[0].sum(keepdims=True), of_rows[1].sum(keepdims=True)
    for both, total in (of_batch, of_rows):
        for name, overlap in _measures(both, total):
            for known in (1.0 - overlap, -overlap):
                is_telling = min(abs(known), abs(overlap)) > _TELLING
                if is_telling and math.isclose(known, loss, rel_tol=_CLOSE):
                    return name
    return None


def _measures(both: _Numbers, total: _Numbers) -> Iterator[tuple[str, float]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        for above, below in _SMOOTHING:
            yield "Dice", float(((2 * both + above) / (total + below)).mean())
            yield "Jaccard", float(((both + above) / (total - both + below)).mean())
