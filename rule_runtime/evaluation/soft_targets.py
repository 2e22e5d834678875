"""Targets of a cross entropy that should be probabilities, and are other numbers.

Only values tell, which are saved seldom: rows of zeros, which a script leaves out on purpose, and
weights of rows have the same means as places or amounts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.evaluation.loss_inputs import LossInputs
from rule_runtime.evaluation.loss_mismatches import LossMismatch
from rule_runtime.evaluation.loss_values import outputs_and_targets

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["no_shares_of"]

_OF_CLASSES: Final = re.compile(r"^CrossEntropyLoss_output")
_CLASSES: Final = 1
_FEWEST_ROWS: Final = 8
_FULL: Final = 0.9
_APART: Final = 0.05


def no_shares_of(step: StepView, inputs: LossInputs, name: str, worker: str) -> LossMismatch | None:
    """Return what is wrong with targets that are neither classes nor their probabilities.

    They are as many numbers as scores, 9 in 10 of them not zero in rows that are not all zero, and
    the sums of these rows, which should be 1, scatter by more than 0.05. Weighted rows have
    zeros beside their class.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`.
        worker: The worker.

    Returns:
        None if nothing is, or their values were not saved.
    """
    scores, given = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    if not _OF_CLASSES.match(name) or scores is None or given is None:
        return None
    shape = given.shape or ()
    if len(shape) <= _CLASSES or shape != scores.shape or shape[_CLASSES] == 1:
        return None
    values = outputs_and_targets(step, name, worker)
    if values is None or values[1].dtype.kind != "f" or not np.isfinite(values[1]).all():
        return None
    rows = np.moveaxis(values[1].astype(np.float64), _CLASSES, -1).reshape(-1, shape[_CLASSES])
    rows = rows[(rows != 0).any(axis=1)]
    if len(rows) < _FEWEST_ROWS or np.mean(rows != 0) < _FULL:
        return None
    sums = rows.sum(axis=1)
    scatter = float(sums.std())
    if scatter <= _APART:
        return None
    told = "takes targets that sum to 1 in each row, one class or probabilities, and gets rows "
    told += f"that sum to {sums.min():.3g} to {sums.max():.3g}"
    return LossMismatch("row_sum", scatter, _APART, told)
