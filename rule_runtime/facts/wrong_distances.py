"""Distances that a script writes itself, of the wrong things: of means, or of all pairs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.facts.loss_inputs import Input

__all__ = ["is_distance_of_means", "is_of_every_distance", "may_be_of_every_distance"]

_MOST_ELEMENTS: Final = 1 << 18
_CLOSE: Final = 1e-4
_EXACT: Final = 2e-5
_ROUNDING: Final = 2e-5
_SURELY: Final = 10.0
_TENTHS_OF_PERCENT: Final = 1000.0
_OF_A_STEP: Final = 1e-4


def is_distance_of_means(outputs: Input, target: Input, loss: float) -> bool:
    """Return whether a loss is the distance of the mean output from one number, or its square.

    The outputs must lie on both sides of that number, or their variance be too large, for the mean
    of their own distances to be the same. A number of three decimals or less is none of data:
    somebody wants the outputs to have this mean.

    Args:
        outputs: Outputs, more than one.
        target: What they are compared with.
        loss: The loss; below 0 if it has the sign of the difference.
    """
    if target.shape != () or not outputs.size > 1:
        return False
    if not (math.isfinite(target.mean) and math.isfinite(loss)):
        return False
    number = target.mean
    in_thousandths = number * _TENTHS_OF_PERCENT
    if not abs(in_thousandths - round(in_thousandths)) > _OF_A_STEP * max(1.0, abs(number)):
        return False
    apart = abs(outputs.mean - number)
    rounding = _CLOSE * apart + _ROUNDING * (abs(outputs.mean) + outputs.std)
    inside = min(number - outputs.low, outputs.high - number)
    farthest = max(number - outputs.low, outputs.high - number)
    root = math.hypot(apart, outputs.std)
    # What the mean of their own distances is at least: none is larger than the farthest.
    of_each = max(apart + 2 * inside / outputs.size, root * root / farthest if inside > 0 else 0.0)
    is_apart = abs(abs(loss) - apart) <= rounding
    if is_apart and (loss < -_SURELY * rounding or of_each - apart > _SURELY * rounding):
        return True
    is_square = loss >= 0 and abs(math.sqrt(loss) - apart) <= rounding
    return is_square and root - apart > _SURELY * rounding


def may_be_of_every_distance(outputs: Input, targets: Input, loss: float) -> bool:
    """Return whether a loss may be the mean of the distances of each output from each target.

    It lies between the distance of their means and the root of the mean square of all differences.

    Args:
        outputs: Outputs.
        targets: Targets, as many.
        loss: The loss.
    """
    if outputs.size != targets.size or not 1 < targets.size <= _MOST_ELEMENTS:
        return False
    apart = abs(outputs.mean - targets.mean)
    most = math.hypot(apart, outputs.std, targets.std)
    return (1 - _CLOSE) * apart <= loss <= (1 + _CLOSE) * most


def is_of_every_distance(outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float) -> bool:
    """Return whether a loss is the mean of the distances of each output from each target.

    Not if that of each output from its own target is nearly the same.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets, as many.
        loss: The loss.
    """
    if outputs.size != targets.size or not 1 < targets.size <= _MOST_ELEMENTS:
        return False
    if outputs.dtype.kind not in "fiu" or targets.dtype.kind not in "fiu" or not loss > 0:
        return False
    given, asked = (array.astype(np.float64).reshape(-1) for array in (outputs, targets))
    if not (np.isfinite(given).all() and np.isfinite(asked).all()):
        return False
    of_all = _mean_distance(given, asked)
    of_own = float(np.abs(given - asked).mean())
    is_telling = abs(of_all - of_own) > _SURELY * _EXACT * loss
    return is_telling and abs(loss - of_all) <= _EXACT * loss


def _mean_distance(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> float:
    """Return the mean distance of each of some numbers from each of others."""
    ordered = np.sort(others)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, some)
    above = len(ordered) - below
    totals = some * (below - above) + sums[-1] - 2 * sums[below]
    return float(totals.mean() / len(ordered))
