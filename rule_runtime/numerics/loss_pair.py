"""Outputs and targets of a loss as tables, and the values of usual losses for them.

Shape legend: B = rows, K = columns of a row, R = rows with a class, C = classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.class_pairs import class_axis, is_one_hot

__all__ = [
    "LOWEST_LOGARITHM",
    "MAX_ELEMENTS",
    "MIN_MATCHES",
    "MIN_ROWS",
    "TOLERANCE",
    "LossPair",
    "constant_predictor_loss",
    "loss_pair",
]

_Numbers = npt.NDArray[np.float64]

MIN_ROWS: Final = 8
"""Minimum rows of a batch; fewer match by chance."""
MAX_ELEMENTS: Final = 1 << 20
"""Maximum elements of outputs, or pairs of an output and a target; more take too long."""
TOLERANCE: Final = 1e-4
"""Relative error of a recomputed loss: sums in float32 or of half-precision outputs."""
MIN_MATCHES: Final = 2
"""Minimum saved steps at which a loss must equal a formula; one match may be chance."""
_SUM_ERROR: Final = 1e-3
"""Error of a sum of probabilities."""
_WIDE: Final = 0.8
"""Minimum range of outputs in [0, 1] that logits do not reach by chance."""
LOWEST_LOGARITHM: Final = -100.0
"""Lower limit of logarithms in BCELoss."""
_ROWS_EACH: Final = 20
"""Minimum rows per fitted constant."""


def _huber(errors: _Numbers) -> _Numbers:
    """Return half of the square of errors below 1, and their size minus 0.5 above."""
    sizes = np.abs(errors)
    return np.where(sizes < 1, errors**2 / 2, sizes - 0.5)


def _log_cosh(errors: _Numbers) -> _Numbers:
    """Return the logarithms of the hyperbolic cosines of errors."""
    return np.asarray(np.logaddexp(errors, -errors) - math.log(2))


_DISTANCES: Final[dict[str, Callable[[_Numbers], _Numbers]]] = {
    "squares": np.square,
    "sizes": np.abs,
    "Huber": _huber,
    "ln cosh": _log_cosh,
}
"""Regression losses of errors, by name."""


class ClassRows(NamedTuple):
    """Scores of classes [R, C], and the class of each row [R]."""

    scores: _Numbers
    classes: npt.NDArray[np.int64]

    def own(self, values: _Numbers) -> _Numbers:
        """Return the values [R, C] at each row's own class [R]."""
        return np.asarray(values[np.arange(len(self.classes)), self.classes])

    @property
    def cross_entropy(self) -> _Numbers:
        """Cross entropy of the softmax of each row [R]."""
        return self.own(self.cross_entropies)

    @property
    def cross_entropies(self) -> _Numbers:
        """Cross entropy of the softmax of each row for each class [R, C]."""
        return -_log_softmax(self.scores)


class LossPair:
    """Outputs [B, ...] and targets [B, ...] of a loss, or one target for all, as float64.

    Attributes:
        o: The outputs [B, K].
        t: The targets, [B, K] if each output has its own.
        is_elementwise: Whether each output has its own target.
        by_class: Scores and classes, if targets are classes; otherwise None.
        rows: Scores and targets [R, C] if both have a class dimension; otherwise None.
    """

    def __init__(self, outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> None:
        o, t = outputs.astype(np.float64), targets.astype(np.float64)
        self.rows: tuple[_Numbers, _Numbers] | None = None
        has_columns = o.ndim > 1 and o.shape[1] > 1
        if has_columns and t.ndim > 1 and (t == t[:, :1]).all():
            t = t[:, 0]  # one target for all columns
        self.by_class = _classes_of_rows(o, t)
        if has_columns and o.shape == t.shape:
            self.rows = _rows(o), _rows(t)
            o_rows, t_rows = self.rows
            self.by_class = ClassRows(o_rows, t_rows.argmax(1)) if is_one_hot(t_rows) else None
        self.is_elementwise = o.size == t.size
        self.o = o.reshape(len(o), -1)
        self.t = t.reshape(self.o.shape) if self.is_elementwise else t

    @cached_property
    def errors(self) -> _Numbers:
        """Outputs minus targets [B, K]; empty if they do not match elementwise."""
        if self.is_elementwise:
            return np.asarray(self.o - self.t)
        return np.asarray(self.o - self.t.item()) if self.t.size == 1 else np.empty(0)

    @cached_property
    def are_probabilities(self) -> bool:
        """Whether all outputs are between 0 and 1."""
        return bool(self.o.min() >= 0 and self.o.max() <= 1 + _SUM_ERROR)

    @cached_property
    def are_normalised_over_rows(self) -> bool:
        """Whether scores are logarithms of shares that sum to 1 over the rows, not the classes.

        As many rows as classes can be similarities of pairs, which have two correct axes.
        """
        if self.by_class is None or self.o.max() > 0 or len(set(self.by_class.scores.shape)) == 1:
            return False
        shares = np.exp(self.by_class.scores)
        return _are_distributions(shares.T) and not _are_distributions(shares)

    @cached_property
    def usual_losses(self) -> dict[str, _Numbers]:
        """The values of usual losses for each row, or element."""
        found: dict[str, _Numbers] = {}
        if self.errors.size:
            found |= {name: distance(self.errors) for name, distance in _DISTANCES.items()}
        are_shares = self.is_elementwise and self.t.min() >= 0 and self.t.max() <= 1
        if are_shares and (self.rows is None or not _are_distributions(self.rows[1])):
            if self.are_probabilities:
                of_ones, of_zeros = self.t * _log(self.o), (1 - self.t) * _log(1 - self.o)
                found["binary, of probabilities"] = -(of_ones + of_zeros)
            if not self.are_probabilities or np.ptp(self.o) < _WIDE:
                found["binary, of logits"] = np.logaddexp(0, self.o) - self.t * self.o
        if self.by_class is not None:
            own = self.by_class.own(self.by_class.scores)
            if not _are_distributions(self.by_class.scores):
                found["classes, of logits"] = self.by_class.cross_entropy
            if self.are_probabilities:
                found["classes, of probabilities"] = -_log(own)
            if self.o.max() <= 0 and not self.are_normalised_over_rows:
                found["classes, of logarithms"] = -own
        return found


def loss_pair(outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> LossPair | None:
    """Return outputs [B, ...] and targets; None if too few, too many, not finite or constant."""
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "biuf" or not outputs.ndim:
        return None
    if not MIN_ROWS <= len(outputs) <= outputs.size <= MAX_ELEMENTS or not targets.size:
        return None
    is_known = np.isfinite(outputs).all() and np.isfinite(targets).all() and np.ptp(outputs) > 0
    varies = targets.size == 1 or np.ptp(targets.astype(np.float64)) > 0
    return LossPair(outputs, targets) if is_known and varies else None


def constant_predictor_loss(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float:
    """Return the loss of the best constant predictor; 0 if unknown.

    A constant predictor returns the mean or median of each numeric column, or the class
    frequencies. The loss must be a plain mean over rows, without weights or smoothed labels. For
    numbers, it may also be half of that, a sum over columns, or the root of a mean square.
    """
    pair = loss_pair(outputs, targets)
    if pair is None:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for name, losses in pair.usual_losses.items():
            mean, columns = float(losses.mean()), pair.o.shape[1]
            factors = (1.0, 0.5, columns, columns / 2) if name in _DISTANCES else (1.0,)
            for factor in factors:
                if math.isclose(factor * mean, loss, rel_tol=TOLERANCE):
                    return factor * _baseline(pair, name)
            if name == "squares" and math.isclose(math.sqrt(mean), loss, rel_tol=TOLERANCE):
                return math.sqrt(_baseline(pair, name))
    return 0.0


def _baseline(pair: LossPair, name: str) -> float:
    """Return the mean loss of the best constant predictor for one of the usual losses."""
    if name in _DISTANCES:
        return _smallest_distance(_DISTANCES[name], pair.t.reshape(len(pair.o), -1))
    if pair.by_class is not None and name.startswith("classes"):
        return _entropy(np.bincount(pair.by_class.classes))
    if not np.isin(pair.t, (0, 1)).all():
        return 0.0
    ones, rows = pair.t.sum(axis=0), len(pair.t)
    return float(np.mean([_entropy(np.array([rows - of, of])) for of in ones]))


def _smallest_distance(distance: Callable[[_Numbers], _Numbers], targets: _Numbers) -> float:
    """Return the smallest mean distance from a constant per column [B, K]; one for few rows."""
    rows = len(targets)
    if rows < _ROWS_EACH:
        targets, fitted = targets.reshape(-1, 1), 1.0
    else:
        fitted = rows / (rows - 1)  # constants of columns are slightly worse for other rows
    constants = (targets.mean(axis=0), np.median(targets, axis=0))
    return fitted * min(float(distance(targets - one).mean()) for one in constants)


def _entropy(counts: npt.NDArray[Any]) -> float:
    """Return the entropy of classes with Miller's correction, nats; 0 for one class or few rows."""
    present = counts[counts > 0]
    rows = float(present.sum())
    if rows < _ROWS_EACH * len(present):
        return 0.0
    shares = present / rows
    entropy = -float((shares * np.log(shares)).sum()) + (len(present) - 1) / (2 * rows)
    return min(entropy, math.log(len(present)))


def _log_softmax(scores: _Numbers) -> _Numbers:
    """Return logarithms of the softmax of scores [R, C]."""
    apart = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(apart - np.log(np.exp(apart).sum(axis=1, keepdims=True)))


def _rows(values: _Numbers, axis: int = 1) -> _Numbers:
    """Return numbers [B, C, ...] as rows [R, C], with the classes along some dimension."""
    return np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])


def _classes_of_rows(o: _Numbers, t: _Numbers) -> ClassRows | None:
    """Return scores and classes of class labels, without negative ones; None for others."""
    axis = class_axis(t.shape, o.shape)
    if not axis or o.shape[axis] == 1:
        return None
    classes = t.reshape(-1)
    known = classes >= 0
    if not known.any() or classes.max() >= o.shape[axis] or (classes != np.floor(classes)).any():
        return None
    return ClassRows(_rows(o, axis)[known], classes[known].astype(np.int64))


def _are_distributions(rows: _Numbers) -> bool:
    """Return whether rows are probabilities that sum to 1; rows of zeros are padding."""
    sums = rows.sum(axis=1)
    return bool(rows.min() >= 0 and ((np.abs(sums - 1) < _SUM_ERROR) | (sums == 0)).all())


def _log(probabilities: _Numbers) -> _Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(np.log(probabilities), LOWEST_LOGARITHM)
