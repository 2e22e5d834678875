"""Losses, known again by what they are of outputs and targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["best_constant", "of_sigmoids_of_probabilities"]

_Errors = npt.NDArray[np.float64]
_MOST_ELEMENTS: Final = 1 << 18
_CLOSE: Final = 1e-4
_NUM_HALVINGS: Final = 40
_THIRD: Final = 1 / 3
_MATRIX: Final = 2


def _huber(errors: _Errors) -> _Errors:
    sizes = np.abs(errors)
    return np.where(sizes < 1, errors**2 / 2, sizes - 0.5)


def _log_cosh(errors: _Errors) -> _Errors:
    return np.logaddexp(errors, -errors) - math.log(2)


_FORMS: Final[tuple[Callable[[_Errors], _Errors], ...]] = (np.square, np.abs, _huber, _log_cosh)


def best_constant(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float | None:
    """Return what the best single number for all outputs gives; None if the loss is not known.

    Known are means of squares, of distances, of what HuberLoss and SmoothL1Loss are of by their
    defaults and of ln cosh, half of them, their sums over a row, and roots of mean squares.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets [B, ...], as many.
        loss: The loss.
    """
    if outputs.size != targets.size or not 1 < targets.size <= _MOST_ELEMENTS:
        return None
    if outputs.dtype.kind not in "fiu" or targets.dtype.kind not in "fiu":
        return None
    # Of huge numbers squares are infinite, and near no loss.
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = targets.astype(np.float64).reshape(-1)
        errors = outputs.astype(np.float64).reshape(-1) - numbers
        in_row = targets.size / max(len(targets), 1)
        for form in _FORMS:
            mean = float(form(errors).mean())
            for factor in (1.0, 0.5, in_row, in_row / 2):
                if math.isclose(factor * mean, loss, rel_tol=_CLOSE):
                    return factor * _smallest(form, numbers)
        if math.isclose(math.sqrt(float(np.square(errors).mean())), loss, rel_tol=_CLOSE):
            return float(numbers.std())
    return None


def _smallest(form: Callable[[_Errors], _Errors], numbers: _Errors) -> float:
    """Return the smallest mean of a convex function of the distances to one number."""
    low, high = float(numbers.min()), float(numbers.max())
    for _ in range(_NUM_HALVINGS):
        third = (high - low) * _THIRD
        a, b = low + third, high - third
        if form(numbers - a).mean() <= form(numbers - b).mean():
            high = b
        else:
            low = a
    return float(form(numbers - (low + high) / 2).mean())


def of_sigmoids_of_probabilities(
    outputs: npt.NDArray[Any],
    targets: npt.NDArray[Any],
    others: Sequence[npt.NDArray[Any]],
    loss: float,
) -> float | None:
    """Return how many times their entropy a loss is that takes sigmoids of probabilities.

    It is the cross entropy of what they then are, as a mean, or a sum of each row or of all, and
    may have the divergence of a normal distribution from the standard one in it.

    Args:
        outputs: Probabilities [B, ...] as the targets, or [B, T + 2 Z] with means and logarithms of
            variances behind them.
        targets: Numbers from 0 to 1 [B, ...].
        others: Further inputs of the loss: means and logarithms of variances, if there are any.
        loss: The loss.

    Returns:
        The cross entropy in parts of the entropy of the probabilities; None of any other loss.
    """
    arrays = (outputs, targets, *others)
    if any(a.dtype.kind not in "biuf" or not 0 < a.size <= _MOST_ELEMENTS for a in arrays):
        return None
    if not outputs.ndim or not targets.ndim or len(outputs) != len(targets):
        return None
    rows = len(targets)
    p, t = (a.astype(np.float64).reshape(rows, -1) for a in (outputs, targets))
    p, rest = p[:, : t.shape[1]], p[:, t.shape[1] :]
    if p.shape != t.shape or not (_is_share(p) and _is_share(t) and np.ptp(p) > 0):
        return None
    entropy = float(np.sum(np.logaddexp(0, p) - t * p))
    divergence = _divergence(np.array_split(rest, 2, axis=1) if rest.size else others)
    sums = [0.0] if divergence is None else [divergence, divergence / rows]
    is_known = any(
        math.isclose(entropy / by + more, loss, rel_tol=_CLOSE)
        for by in (1, rows, t.size)
        for more in sums
    )
    inner = p[(p > 0) & (p < 1)]
    own = -float(np.sum(inner * np.log(inner) + (1 - inner) * np.log1p(-inner)))
    return entropy / max(own, _CLOSE * entropy) if is_known else None


def _is_share(values: _Errors) -> bool:
    return bool(values.min() >= 0 and values.max() <= 1)


def _divergence(parts: Sequence[npt.NDArray[Any]]) -> float | None:
    """Return that of normal distributions from the standard one, nats; None if it is not known."""
    if len(parts) != _MATRIX or parts[0].shape != parts[1].shape:
        return None
    mean, log_variance = (part.astype(np.float64) for part in parts)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = mean**2 + np.exp(log_variance) - 1 - log_variance
    return float(apart.sum()) / 2
