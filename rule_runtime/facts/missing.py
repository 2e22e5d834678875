"""Texts on why a step is not evaluated, and how to get the missing data.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hook_layer.frameworks import FALLING_METRIC, TENSORFLOW, XGBOOST
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.saved_tensors import declared, num_not_finite
from rule_runtime.trial.step_view import SAVE_VALUES, StepView, TensorRows

__all__ = [
    "missing_counted_loss",
    "missing_gradients",
    "missing_loss",
    "missing_statistics",
    "missing_tensors",
    "required_tensors",
]

_SAVE_TENSORS: Final = "add the collection to the hook, or lower its save_interval"


def missing_loss(step: StepView) -> Missing:
    """Return that no loss was saved at this step, or at any."""
    framework = framework_of(step)
    how = {XGBOOST: FALLING_METRIC, TENSORFLOW: "save the collection losses"}.get(framework)
    if how is None and declared(step, "losses"):
        how = "lower save_interval of the collection losses"
    return Missing("no loss was saved", how or framework.facts.advice.loss_inputs)


def missing_tensors(*collections: str) -> Missing:
    """Return that no tensor of collections was saved."""
    names = " or ".join(collections)
    return Missing(f"no tensor of the collection {names} was saved", _SAVE_TENSORS)


def required_tensors(step: StepView, *collections: str) -> TensorRows:
    """Return the tensors of collections; raise `Missing` if none was saved."""
    rows = step.tensors(collections=collections)
    if not len(rows):
        raise missing_tensors(*collections)
    return rows


def missing_statistics(rows: TensorRows, columns: Sequence[str], noun: str) -> Missing | None:
    """Return why no row [R] has all of some statistics; None if one has. There is at least one row.

    `noun` is the name of a row, such as `gradient`.
    """
    unknown = np.isnan(np.stack([rows.column(name) for name in columns]))
    if not unknown.any(axis=0).all():
        return None
    if (num_not_finite(rows) > 0).all():
        return Missing(f"no saved {noun} is finite", "see the rule NonFinite")
    names = [name for name, row in zip(columns, unknown, strict=True) if row.any()]
    # The original client saved neither values nor all statistics.
    how = f"{SAVE_VALUES}, or use the hook of Stepwatch"
    return Missing(f"saved {noun}s have no {', '.join(names)}", how)


def missing_gradients(gradients: TensorRows, columns: Sequence[str]) -> Missing | None:
    """Return why no gradient [R] has all of some statistics; None if a gradient has."""
    if not len(gradients):
        return missing_tensors("gradients")
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
