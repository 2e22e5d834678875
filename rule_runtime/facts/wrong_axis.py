"""Probabilities that a softmax made over another axis than that of the classes.

Only values tell, which are saved seldom: those along the axis of the classes do not sum to 1, and
those along another one do, in every place. Those of texts whose places are one dimension with the
texts sum to the number of texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_mismatch import LossMismatch

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["wrong_axis_of"]

_OF_CLASSES: Final = re.compile(r"^(?P<logarithms>NLL|KLDiv)?(CrossEntropy)?Loss_output")
_CLASSES: Final = 1
_CLOSE: Final = 1e-3
_FAR: Final = 0.01
_MATRIX: Final = 2


def wrong_axis_of(
    step: StepView, inputs: LossInputs, name: str, worker: str
) -> LossMismatch | None:
    """Return what is wrong with probabilities, or their logarithms, that a loss of classes gets.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`.
        worker: The worker.

    Returns:
        None if nothing is, or their values were not saved.
    """
    matched = _OF_CLASSES.match(name)
    outputs = inputs.of(name, worker, 0)
    if matched is None or outputs is None:
        return None
    is_logarithm = matched["logarithms"] is not None
    # Whole batches are not read where their extremes tell that they are no probabilities.
    if outputs.high > (_CLOSE if is_logarithm else 1 + _CLOSE) or (
        outputs.low < 0 and not is_logarithm
    ):
        return None
    given = f"{name.removesuffix('_output_0')}_input_0"
    values = step.values((given,), worker).get(given)
    if values is None or values.ndim <= _CLASSES or values.dtype.kind != "f" or not values.size:
        return None
    shares = np.exp(values.astype(np.float64)) if is_logarithm else values
    if not np.isfinite(shares).all() or shares.min() < 0 or shares.max() > 1 + _CLOSE:
        return None
    of_classes = _distance_from_1(shares, _CLASSES)
    others = [axis for axis in range(shares.ndim) if axis != _CLASSES and shares.shape[axis] > 1]
    sums = {axis: _whole_sum(shares, axis) for axis in others}
    found = [axis for axis in others if sums[axis]]
    if not found or of_classes < _FAR:
        return None
    shape = list(values.shape)
    message = f"gets probabilities of shape {shape} that sum to {sums[found[0]]} along dimension "
    message += f"{found[0]}, and not to 1 along dimension {_CLASSES}, that of the classes"
    return LossMismatch("axis", float(found[0]), float(_CLASSES), message)


def _whole_sum(shares: npt.NDArray[Any], axis: int) -> int:
    """Return what probabilities sum to along an axis everywhere; 0 if that is no whole number.

    That is 1, or the number of texts if their places are one dimension with them, [B * T, C].
    """
    if shares.ndim > _MATRIX:
        return int(_distance_from_1(shares, axis) < _CLOSE)
    whole = int(np.rint(shares.sum(axis).mean()))
    if whole < 1 or shares.shape[axis] % whole or whole == shares.shape[axis]:
        return 0
    return whole if _distance_from_1(shares / whole, axis) < _CLOSE else 0


def _distance_from_1(shares: npt.NDArray[Any], axis: int) -> float:
    """Return how far sums along an axis are from 1, at most."""
    return float(np.abs(shares.sum(axis) - 1).max())
