"""Measures the share of dead or saturated units of a layer.

Shape legend: N = batch, U = units, ... = spatial or further axes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["inactive_units", "saturated_units"]


def inactive_units(is_active: npt.NDArray[Any], least_percent: float) -> float:
    """Return the share of units that are active in less than a percentage of their outputs.

    Units are the features of [N, U] and the channels of [N, U, H, W] etc. With three dimensions,
    units may be on the second or last axis; the larger share counts. A non-zero output is active.
    The share is in percent; NaN without numbers, without a batch, or with one output per unit.
    """
    shape = is_active.shape
    if 0 in shape or is_active.dtype.kind not in "biuf":
        return math.nan
    match shape:
        case () | (_,):
            axes: tuple[int, ...] = ()
        case (_, _, _):  # [N, U, L] or [N, T, U]
            axes = (1, 2)
        case _:
            axes = (1,)
    found = []
    for axis in axes:
        num_units = shape[axis]
        num_outputs = is_active.size // num_units
        if num_outputs > 1:
            others = tuple(at for at in range(len(shape)) if at != axis)
            percent = 100.0 * np.count_nonzero(is_active, axis=others) / num_outputs
            num_inactive = int(np.count_nonzero(percent < least_percent))
            found.append(100.0 * num_inactive / num_units)
    return max(found, default=math.nan)


def saturated_units(
    inputs: npt.NDArray[Any], limits: npt.NDArray[np.float64], least_percent: float
) -> float:
    """Return the share of units with too few inputs [N, ...] between two limits [2].

    The share and `least_percent` are those of `inactive_units`; NaN counts as between the limits.
    """
    if inputs.dtype.kind not in "biuf":
        return math.nan
    low, high = limits
    return inactive_units(~((inputs <= low) | (inputs >= high)), least_percent)
