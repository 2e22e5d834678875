"""Targets of a cross entropy that should be probabilities, and are other numbers.

Only values tell, which are saved seldom: rows of zeros, which a script leaves out on purpose, and
weights of rows have the same means as places or amounts.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["no_shares_of"]

_OF_CLASSES: Final = re.compile(r"^CrossEntropyLoss_output")
_CLASSES: Final = 1
_FEWEST_ROWS: Final = 8
_FULL: Final = 0.9
_APART: Final = 0.05
_FAR: Final = 0.5
_CLOSE: Final = 1e-4
_MOST_ELEMENTS: Final = 1 << 20
_Numbers = npt.NDArray[np.float64]


def no_shares_of(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong with targets that are neither classes nor their probabilities.

    They are as many numbers as scores, 9 in 10 of them not zero in rows that are not all zero, and
    the sums of these rows, which should be 1, scatter by more than 0.05. Rows that are weighted
    have zeros beside their class. Or scores have no classes, and their cross entropy is taken over
    the batch, of targets that do not sum to 1 (to 0.5).

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`; if that is not of a cross entropy, it must prove to be
            one.
        worker: The worker.
        value: The loss.

    Returns:
        None if nothing is, or their values were not saved.
    """
    rows = _rows_of(step, inputs, name, worker, value)
    if rows is None:
        return None
    message = "takes targets that sum to 1 in each row, one class or probabilities, and gets rows "
    if len(rows) == 1:
        size, total = rows.size, float(rows.sum())
        if size < _FEWEST_ROWS or abs(total - 1) <= _FAR:
            return None
        message = (
            f"is a cross entropy over the {size} rows of a batch, as if they were classes, with "
        )
        return LossMismatch("row_sum", total, 1.0, f"{message}targets of sum {total:.3g}")
    rows = rows[(rows != 0).any(axis=1)]
    sums = rows.sum(axis=1)
    scatter = float(sums.std()) if len(rows) >= _FEWEST_ROWS else 0.0
    if scatter <= _APART or np.mean(rows != 0) < _FULL:
        return None
    message += f"that sum to {sums.min():.3g} to {sums.max():.3g}"
    return LossMismatch("row_sum", scatter, _APART, message)


def _rows_of(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> _Numbers | None:
    """Return the targets of a cross entropy, a row for each sum; None of other losses."""
    scores, given = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    is_named = _OF_CLASSES.match(name) is not None
    if scores is None or given is None or not given.shape or given.shape != scores.shape:
        return None
    if not is_named and inputs.kind(name, worker) is not LossKind.UNKNOWN:
        return None
    if is_named and given.shape[_CLASSES:][:1] == (1,):
        return None  # of a single score it is 0
    values = outputs_and_targets(step, name, worker)
    return None if values is None else _rows(*values, None if is_named else value)


def _rows(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float | None
) -> _Numbers | None:
    """Return targets by row [N, C], or all of a batch as one row, as a cross entropy takes them.

    Args:
        outputs: Scores [B, C, ...], or [B] and [B, 1].
        targets: As many.
        loss: What the cross entropy has to be; None if it is one anyway.
    """
    if outputs.shape != targets.shape or not 0 < targets.size <= _MOST_ELEMENTS:
        return None
    if targets.dtype.kind != "f" or not (np.isfinite(targets).all() and np.isfinite(outputs).all()):
        return None
    if targets.size == len(targets):
        o, t = (of.astype(np.float64).reshape(1, -1) for of in (outputs, targets))
    else:
        classes = targets.shape[_CLASSES]
        o, t = (
            np.moveaxis(of.astype(np.float64), _CLASSES, -1).reshape(-1, classes)
            for of in (outputs, targets)
        )
    if loss is None:
        return t
    highest = o.max(axis=1, keepdims=True)
    logarithms = o - highest - np.log(np.exp(o - highest).sum(axis=1, keepdims=True))
    entropy = -float((t * logarithms).sum()) / len(t)
    return t if math.isclose(entropy, loss, rel_tol=_CLOSE) else None
