"""Texts on why a step is not evaluated, and how to get the missing data.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.framework import Framework, framework_of
from rule_runtime.facts.saved_tensors import num_not_finite
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "how_to_save_input_values",
    "how_to_save_loss_inputs",
    "missing_counted_loss",
    "missing_gradients",
    "missing_loss",
    "missing_statistics",
    "missing_validation",
    "missing_values",
]

_SAVE_VALUES: Final = "save their values (save_raw_tensor)"
_FALLING_METRIC: Final = (
    "use a metric that is known to fall, such as eval_metric='logloss' or 'rmse', or a metric of "
    "your own with maximize=False"
)


class _Advice(NamedTuple):
    """How to get missing data with one framework; `input_values` defaults to loss inputs."""

    validation: str
    loss_inputs: str
    input_values: str = ""


_ADVICE: Final = {
    Framework.TORCH: _Advice(
        validation="call model.eval() before validation and model.train() after it, on the model "
        "that is trained; compute the loss with one of torch, such as nn.CrossEntropyLoss, or "
        "record it by name in training and validation: "
        "get_hook().record_tensor_value('loss', loss)",
        loss_inputs="compute the loss with one of torch, such as nn.CrossEntropyLoss or "
        "F.cross_entropy, or record what your own compares: "
        "get_hook().record_loss(outputs, targets, loss)",
    ),
    Framework.KERAS: _Advice(
        validation="pass validation_data= or validation_split= to `fit`, or call `evaluate` "
        "between epochs",
        loss_inputs="train with `fit` and a loss of keras.losses",
        input_values="the hook for Keras saves them if `fit` trains the model with labels",
    ),
    Framework.TENSORFLOW: _Advice(
        validation="call hook.set_mode(modes.EVAL) and run the session with validation data",
        loss_inputs="the hook for TensorFlow sessions saves no inputs of losses",
        input_values="the hook for TensorFlow sessions does not save them",
    ),
    Framework.MXNET: _Advice(
        validation="compute it with a block of gluon.loss outside autograd.record(), or record it "
        "by name in training and validation: hook.save_tensor('loss', loss, 'losses')",
        loss_inputs="compute the loss with a block of gluon.loss, such as SoftmaxCrossEntropyLoss; "
        "the hook does not see all inputs of other losses",
        input_values="the hook for MXNet does not save them",
    ),
    Framework.XGBOOST: _Advice(
        validation="pass validation data in `evals` (`eval_set` of `fit`), and "
        f"{_FALLING_METRIC}; error rates are not evaluated",
        loss_inputs="XGBoost saves labels and predictions of the data in `evals` (`eval_set` of "
        "`fit`)",
    ),
}


def how_to_save_loss_inputs(step: StepView) -> str:
    """Return how to save loss inputs or labels with the run's framework."""
    return _ADVICE[framework_of(step)].loss_inputs


def how_to_save_input_values(step: StepView) -> str:
    """Return how to save values of the model's inputs and targets with the run's framework."""
    advice = _ADVICE[framework_of(step)]
    return advice.input_values or advice.loss_inputs


def missing_validation(step: StepView) -> Missing:
    """Return that no validation loss was saved."""
    return Missing("no validation loss was saved", _ADVICE[framework_of(step)].validation)


def missing_loss(step: StepView) -> Missing:
    """Return that no loss was saved."""
    is_boosted = framework_of(step) is Framework.XGBOOST
    return Missing("no loss was saved", _FALLING_METRIC if is_boosted else "")


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
