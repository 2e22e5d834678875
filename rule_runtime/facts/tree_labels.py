"""How far the labels of boosted trees scatter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["spread_of_labels"]

_WITH_COLUMNS: Final = 2


def spread_of_labels(step: StepView) -> float:
    """Return how far labels scatter, the error of the best constant; NaN if it is not known.

    Of several columns, which may be in unlike units, it is the root of their mean variance: a
    constant for each is what an `rmse` of them all is compared with.

    Args:
        step: A step.
    """
    rows = step.tensors(collections=("labels",))
    spreads = np.array(rows.column("std"), dtype=np.float64)
    for at, (name, worker, shape) in enumerate(
        zip(rows.names, rows.workers, rows.shapes, strict=True)
    ):
        if len(shape or ()) < _WITH_COLUMNS or (shape or ())[1] < _WITH_COLUMNS:
            continue
        values = step.values((name,), worker).get(name)
        is_known = values is not None and values.ndim == _WITH_COLUMNS
        spreads[at] = _of_columns(values) if is_known and values is not None else np.nan
    return float(np.nanmin(spreads)) if np.isfinite(spreads).any() else math.nan


def _of_columns(values: npt.NDArray[np.float64]) -> float:
    return math.sqrt(values.astype(np.float64).var(axis=0).mean())
