"""Shares of a layer's units: what is the case for how many of the outputs of each unit.

Shape legend: N = batch, U = units, ... = spatial or further axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["unit_axes", "unit_percentages"]


def unit_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that may be those of the units, for a tensor of a layer.

    Units are the features of [N, U] and the channels of [N, U, H, W] and the like. In three
    dimensions it may be either, [N, U, L] or [N, T, U]. A tensor without a batch, or with one
    number of each unit, has none: one number says nothing about a unit.

    Args:
        shape: The tensor's shape.
    """
    if len(shape) < 2 or 0 in shape:  # noqa: PLR2004 - a batch and its units
        return ()
    axes = (1, 2) if len(shape) == 3 else (1,)  # noqa: PLR2004 - see above
    size = int(np.prod(shape))
    return tuple(axis for axis in axes if size > shape[axis])


def unit_percentages(holds: npt.NDArray[Any], axis: int) -> npt.NDArray[np.float64]:
    """Return in how many percent of its outputs something holds, of each unit [U].

    Args:
        holds: For each output whether it holds, 0 or not [N, ...].
        axis: The axis of the units.
    """
    others = tuple(at for at in range(holds.ndim) if at != axis)
    num_outputs = holds.size // holds.shape[axis]
    counts = np.count_nonzero(holds, axis=others)
    percentages: npt.NDArray[np.float64] = 100.0 * counts / num_outputs
    return percentages
