"""Inputs of tanh and sigmoid: which of the two they go into, and how many units are saturated.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.saturation import inactive_units
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SATURATING", "kinds_of", "saturated_percentages"]

SATURATING: Final = ("tanh", "sigmoid")
"""The activations that saturate; the hook fills the collections `{kind}_input` by type."""


def kinds_of(step: StepView, rows: TensorRows) -> list[str]:
    """Return `tanh` or `sigmoid` for each row; "" where neither collection nor name tells it [R].

    Args:
        step: The step.
        rows: Inputs of activations [R].
    """
    members = {
        (*pair, kind)
        for kind in SATURATING
        for inputs in [step.tensors(collections=(f"{kind}_input",))]
        for pair in zip(inputs.names, inputs.workers, strict=True)
    }
    found = []
    for name, worker in zip(rows.names, rows.workers, strict=True):
        by_type = [kind for kind in SATURATING if (name, worker, kind) in members]
        by_name = [kind for kind in SATURATING if kind in name.casefold()]
        found.append(next(iter([*by_type, *by_name]), ""))
    return found


def saturated_percentages(
    step: StepView,
    rows: TensorRows,
    kinds: Sequence[str],
    limits: Mapping[str, tuple[float, float]],
    least_percent: float,
) -> npt.NDArray[np.float64]:
    """Return the share of saturated units of each row; NaN where it is unknown [R].

    Values are read only where the extremes are not within the limits.

    Args:
        step: The step.
        rows: Inputs of activations [R].
        kinds: What each of them goes into [R].
        limits: Open interval of the inputs at which an activation is not saturated.
        least_percent: Share of its inputs within the limits below which a unit is saturated.
    """
    low, high = np.array([limits.get(kind, (np.nan, np.nan)) for kind in kinds]).T
    is_within = (rows.column("min") > low) & (rows.column("max") < high)
    saturated = np.where(is_within & (rows.column("inf") == 0), 0.0, np.nan)
    unknown = np.flatnonzero(np.isnan(saturated) & ~np.isnan(low))
    for i, value in row_values(step, rows.select(unknown)):
        at = unknown[i]
        if value.dtype.kind in "biuf":
            is_inside = ~((value <= low[at]) | (value >= high[at]))  # NaN is inside
            found = inactive_units(is_inside, least_percent)
            saturated[at] = np.nan if found is None else found.percent
    return saturated
