"""Texts on why a step is not evaluated, and how to get the missing data.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hook_layer.frameworks import FALLING_METRIC, XGBOOST
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.saved_tensors import num_not_finite
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "missing_counted_loss",
    "missing_gradients",
    "missing_loss",
    "missing_statistics",
    "missing_values",
]

_SAVE_VALUES: Final = "save their values (save_raw_tensor)"


def missing_loss(step: StepView) -> Missing:
    """Return that no loss was saved."""
    is_boosted = framework_of(step) is XGBOOST
    return Missing("no loss was saved", FALLING_METRIC if is_boosted else "")


def missing_statistics(rows: TensorRows, columns: Sequence[str], noun: str) -> Missing | None:
    """Return why no row [R] has all of some statistics; None if one has. There is at least one row.

    `noun` is the name of a row, such as `gradient`.
    """
    unknown = np.isnan(np.stack([rows.column(name) for name in columns]))
    if not unknown.any(axis=0).all():
        return None
    if (num_not_finite(rows) > 0).all():
        return Missing(f"no saved {noun} is finite")
    names = [name for name, row in zip(columns, unknown, strict=True) if row.any()]
    # The original client saved neither values nor all statistics.
    how = f"{_SAVE_VALUES}, or use the hook of Stepwatch"
    return Missing(f"saved {noun}s have no {', '.join(names)}", how)


def missing_values(tensors: str) -> Missing:
    """Return that the values of tensors were not saved."""
    return Missing(f"the values of {tensors} were not saved", _SAVE_VALUES)


def missing_gradients(gradients: TensorRows, columns: Sequence[str]) -> Missing | None:
    """Return why no gradient [R] has all of some statistics; None if a gradient has."""
    if not len(gradients):
        return Missing("no tensor of the collection gradients was saved")
    return missing_statistics(gradients, columns, "gradient")


def missing_counted_loss(rows: TensorRows, means: npt.NDArray[np.float64], why_not: str) -> Missing:
    """Return why none of a step's losses [R] counts. There is at least one loss.

    `means` [R] is NaN for unknown and non-finite losses. `why_not` is a predicate that follows the
    name of a finite loss and says why it does not count.
    """
    finite = [name for name, mean in zip(rows.names, means, strict=True) if np.isfinite(mean)]
    if finite:
        return Missing(f"{min(finite)} {why_not}")
    unknown = missing_statistics(rows, ("mean",), "loss")
    return unknown or Missing(f"the loss {min(rows.names)} is not finite")
