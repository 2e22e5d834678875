"""Training losses of a step that should fall."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.curve_rule import Points
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.loss_sides import loss_sides
from rule_runtime.facts.losses import OUTPUTS_OF_MODELS, Losses, with_constant_targets
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.numerics.series_memory import Series
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["training_losses", "training_points"]


def training_points(step: StepView) -> Points:
    """Return the finite training losses of a step that should fall, by usual name.

    Raises:
        Missing: There is no such loss.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    losses = training_losses(step, rows, means)
    if not len(rows):
        raise missing_loss(step)
    if not losses:
        raise missing_counted_loss(rows, means, "is no training loss that should fall")
    constant = with_constant_targets(step, losses)
    at = {names: row for names, row in losses.items() if names not in constant}
    if not at:
        raise Missing(f"the targets of {min(rows.names)} are all the same")
    values = {names: float(means[row]) for names, row in at.items()}
    return Points(rows, at, values, _rows_of_batch(step))


def training_losses(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, int]:
    """Return the rows of finite training losses [R] by their usual name and worker.

    Validation losses, and metrics that should grow, are excluded.
    """
    sides = loss_sides(step, rows)
    finite = np.flatnonzero(np.isfinite(means)).tolist()
    training = [at for at in finite if sides[at].is_training and sides[at].key is not None]
    return {(sides[at].name, rows.workers[at]): at for at in training}


def _rows_of_batch(step: StepView) -> float | None:
    """Return the number of rows whose mean the losses are; None if unknown.

    Each class of a sequence counts as a row. Without targets, the outputs of models show it.
    """
    rows = [loss.num_rows for loss in step.fact(Losses).losses]
    known = [num for num in rows if num is not None]
    if not known:
        outputs = step.tensors(regex=OUTPUTS_OF_MODELS).shapes
        known = [math.prod(shape[:-1]) if shape[1:] else shape[0] for shape in outputs if shape]
    return float(max(known)) if known else None
