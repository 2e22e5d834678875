"""The loss of the best constant predictor, for losses that are recomputed from values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.loss_pair import DISTANCES, TOLERANCE, LossPair, loss_pair

__all__ = ["constant_predictor_loss"]

_Numbers = npt.NDArray[np.float64]

_ROWS_EACH: Final = 20
"""Rows for each constant that is fitted to them; fewer say too little of other rows."""


def constant_predictor_loss(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float
) -> float:
    """Return the loss of the best constant predictor; 0 if it is unknown.

    A constant predictor returns the mean or median of each column of numbers, or how frequent
    classes are. The loss must be a plain mean over rows, without weights or smoothed labels. Of
    numbers it may also be half of that, a sum over columns, or the root of a mean square.
    """
    pair = loss_pair(outputs, targets)
    if pair is None:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for name, losses in pair.usual_losses.items():
            mean, columns = float(losses.mean()), pair.o.shape[1]
            factors = (1.0, 0.5, columns, columns / 2) if name in DISTANCES else (1.0,)
            for factor in factors:
                if math.isclose(factor * mean, loss, rel_tol=TOLERANCE):
                    return factor * _baseline(pair, name)
            if name == "squares" and math.isclose(math.sqrt(mean), loss, rel_tol=TOLERANCE):
                return math.sqrt(_baseline(pair, name))
    return 0.0


def _baseline(pair: LossPair, name: str) -> float:
    """Return the mean loss of the best constant predictor by one of the usual losses."""
    if name in DISTANCES:
        return _smallest_distance(DISTANCES[name], pair.t.reshape(len(pair.o), -1))
    if pair.by_class is not None and name.startswith("classes"):
        return _entropy(np.bincount(pair.by_class.classes))
    if not np.isin(pair.t, (0, 1)).all():
        return 0.0
    ones, rows = pair.t.sum(axis=0), len(pair.t)
    return float(np.mean([_entropy(np.array([rows - of, of])) for of in ones]))


def _smallest_distance(distance: Callable[[_Numbers], _Numbers], targets: _Numbers) -> float:
    """Return the smallest mean distance from a number for each column [B, K]; of few rows, one."""
    rows = len(targets)
    if rows < _ROWS_EACH:
        targets, fitted = targets.reshape(-1, 1), 1.0
    else:
        fitted = rows / (rows - 1)  # constants of columns are a bit worse for other rows
    constants = (targets.mean(axis=0), np.median(targets, axis=0))
    return fitted * min(float(distance(targets - one).mean()) for one in constants)


def _entropy(counts: npt.NDArray[Any]) -> float:
    """Return the entropy of classes with Miller's correction, nats; 0 of one class or few rows."""
    present = counts[counts > 0]
    rows = float(present.sum())
    if rows < _ROWS_EACH * len(present):
        return 0.0
    shares = present / rows
    entropy = -float((shares * np.log(shares)).sum()) + (len(present) - 1) / (2 * rows)
    return min(entropy, math.log(len(present)))
