"""Losses, known again by what they are of outputs and targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["best_constant", "best_shares", "entropy_of_counts"]

_Errors = npt.NDArray[np.float64]
_MOST_ELEMENTS: Final = 1 << 18
_CLOSE: Final = 1e-4
_NUM_HALVINGS: Final = 40
_THIRD: Final = 1 / 3
_MATRIX: Final = 2
_ROWS_EACH: Final = 20
_MANY_COLUMNS: Final = 16
_FEWEST_ROWS: Final = 50
_LOWEST_LOGARITHM: Final = -100.0


def _huber(errors: _Errors) -> _Errors:
    sizes = np.abs(errors)
    return np.where(sizes < 1, errors**2 / 2, sizes - 0.5)


def _log_cosh(errors: _Errors) -> _Errors:
    return np.logaddexp(errors, -errors) - math.log(2)


_FORMS: Final[tuple[Callable[[_Errors], _Errors], ...]] = (np.square, np.abs, _huber, _log_cosh)


def best_constant(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float | None:
    """Return what the best single answer for all rows gives; None if the loss is not known.

    That is one number, or of 20 rows or more one for each of their columns, as a mean image is;
    then it is what the means of other rows give. Known are means of squares, of distances, of what
    HuberLoss and SmoothL1Loss are of by their defaults and of ln cosh, half of them, their sums
    over a row, and roots of mean squares.

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
        numbers = targets.astype(np.float64).reshape(len(targets) if targets.ndim else 1, -1)
        errors = outputs.astype(np.float64).reshape(numbers.shape) - numbers
        if len(numbers) < _ROWS_EACH:
            numbers = numbers.reshape(-1, 1)
        in_row = targets.size / max(len(targets), 1)
        for form in _FORMS:
            mean = float(form(errors).mean())
            for factor in (1.0, 0.5, in_row, in_row / 2):
                if math.isclose(factor * mean, loss, rel_tol=_CLOSE):
                    return factor * _smallest(form, numbers)
        if math.isclose(math.sqrt(float(np.square(errors).mean())), loss, rel_tol=_CLOSE):
            return math.sqrt(_smallest(np.square, numbers))
    return None


def _smallest(form: Callable[[_Errors], _Errors], numbers: _Errors) -> float:
    """Return the smallest mean of a convex function of distances to one number a column."""
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    for _ in range(_NUM_HALVINGS):
        third = (high - low) * _THIRD
        a, b = low + third, high - third
        is_lower = form(numbers - a).mean(axis=0) <= form(numbers - b).mean(axis=0)
        low, high = np.where(is_lower, low, a), np.where(is_lower, b, high)
    best, (rows, columns) = float(form(numbers - (low + high) / 2).mean()), numbers.shape
    if columns == 1:
        return best
    # Each column was fitted to these rows; for others its number would be a bit worse.
    return min(float(best * rows / (rows - 1)), _smallest(form, numbers.reshape(-1, 1)))


def best_shares(outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float) -> float | None:
    """Return what answering every row with how frequent classes are gives, by a cross entropy.

    It is their entropy with Miller's correction, which is what frequencies known from other rows
    give; of yes and no with several columns the mean of theirs. Known are means over all targets,
    of scores, of their logarithms and of probabilities; not those with weights, with smoothed
    labels, or of a part of the rows.

    Args:
        outputs: Scores [B, C, ...] or [..., C] of classes, or of yes and no as the targets.
        targets: Numbers of classes [B, ...], those below zero left out, or 0 and 1 [B, ...].
        loss: The loss.

    Returns:
        The loss of such an answer, 0 if rows are too few for that (20 of each class that occurs; 50
        of 16 columns or more of yes and no) or of one class; None if the loss is none of these.
    """
    if not 0 < targets.size <= outputs.size <= _MOST_ELEMENTS or not math.isfinite(loss):
        return None
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "biuf":
        return None
    with np.errstate(invalid="ignore", over="ignore"):  # of what is not finite nothing is known
        if outputs.size == targets.size:
            return _shares_of_yes(outputs, targets, loss)
        found = _by_rows(outputs, targets)
        return None if found is None else _shares_of_classes(*found, loss)


def entropy_of_counts(counts: npt.NDArray[np.float64]) -> float:
    """Return the entropy of classes with Miller's correction, nats.

    Args:
        counts: How often each class occurs [C].

    Returns:
        The entropy; 0 if there are less than two classes, or less than 20 rows for each of them.
    """
    present = counts[counts > 0]
    rows = float(present.sum())
    if len(present) < _MATRIX or rows < _ROWS_EACH * len(present):
        return 0.0
    shares = present / rows
    corrected = -float((shares * np.log(shares)).sum()) + (len(present) - 1) / (2 * rows)
    return min(corrected, math.log(len(present)))  # the answer that all are as frequent is as good


def _shares_of_yes(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float | None:
    rows = len(targets) if targets.ndim else 1
    x, t = (a.astype(np.float64).reshape(rows, -1) for a in (outputs, targets))
    if not np.isin(t, (0, 1)).all():
        return None
    forms = [np.logaddexp(0, x) - t * x]
    if _is_share(x):
        forms.append(-_logarithm(np.where(t > 0, x, 1 - x)))
    if not any(_is_mean(form, loss) for form in forms):
        return None
    ones = t.sum(axis=0)
    if t.shape[1] >= _MANY_COLUMNS and rows >= _FEWEST_ROWS:
        # Of so many each may be rare: it is their mean that counts, as of pixels of a mask.
        return _mean_entropy(ones, rows)
    columns = [entropy_of_counts(np.array([rows - of, of])) for of in ones]
    return float(np.mean(columns)) if min(columns) > 0 else 0.0


def _mean_entropy(ones: npt.NDArray[np.float64], rows: int) -> float:
    """Return the mean of the entropies of columns of yes and no, with Miller's correction."""
    shares = np.stack([ones, rows - ones])[:, (ones > 0) & (ones < rows)] / rows
    entropies = -(shares * np.log(shares)).sum(axis=0) + 1 / (2 * rows)
    return float(np.minimum(entropies, math.log(2)).sum()) / len(ones)


def _shares_of_classes(scores: _Errors, classes: npt.NDArray[Any], loss: float) -> float | None:
    own = scores[np.arange(len(classes)), classes]
    highest = scores.max(axis=1)
    forms = [np.log(np.exp(scores - highest[:, None]).sum(axis=1)) + highest - own]
    if _is_share(scores) and np.allclose(scores.sum(axis=1), 1, atol=_CLOSE):
        forms.append(-_logarithm(own))
    if not any(_is_mean(form, loss) for form in forms):
        return None
    return entropy_of_counts(np.bincount(classes).astype(np.float64))


def _is_mean(losses: _Errors, loss: float) -> bool:
    """Return whether a loss is the plain mean of the losses of rows, without weights."""
    return bool(np.ptp(losses) > 0) and math.isclose(float(losses.mean()), loss, rel_tol=_CLOSE)


def _by_rows(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> tuple[_Errors, npt.NDArray[Any]] | None:
    """Return scores [R, C] and numbers of classes [R]; None if they are none."""
    if targets.dtype.kind not in "iu" or outputs.ndim < _MATRIX:
        return None
    axis = 1 if outputs.shape[:1] + outputs.shape[2:] == targets.shape else -1
    scores = np.moveaxis(outputs, axis, -1).astype(np.float64)
    if scores.size != targets.size * scores.shape[-1]:
        return None
    scores, classes = scores.reshape(-1, scores.shape[-1]), targets.reshape(-1).astype(np.int64)
    known = classes >= 0
    if not known.any() or classes.max() >= scores.shape[-1] or not np.isfinite(scores).all():
        return None
    return scores[known], classes[known]


def _logarithm(probabilities: _Errors) -> _Errors:
    """Return logarithms, none of them below that which BCELoss takes for the one of 0."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(probabilities), _LOWEST_LOGARITHM)


def _is_share(values: _Errors) -> bool:
    return bool(values.min() >= 0 and values.max() <= 1)
