"""How far outputs go with their targets beyond chance, by the permutation test.

Shape legend: B = rows, C = classes, ... = further dimensions.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.loss_pair import MAX_ELEMENTS

__all__ = ["Association"]

_Numbers = npt.NDArray[np.float64]
_MOST_ROWS: Final = 512
"""Rows that are compared; the time grows with their square."""


class Association(NamedTuple):
    """How outputs covary with their targets, and how they would with those of other rows.

    Attributes:
        together: Sum over rows and columns of (output - mean) (target - mean).
        variance: The variance of that sum, were the targets of each batch permuted.
        of_outputs: Sum of the squares of outputs, less their means.
        of_targets: Sum of the squares of targets, less their means.
    """

    together: float
    variance: float
    of_outputs: float
    of_targets: float

    @classmethod
    def of(cls, outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> Association | None:
        """Return the association of a batch; None if outputs and targets do not fit together.

        With centred rows o(i) and t(i), the sum of o(i) t(p(i)) over a random permutation p has
        mean 0 and, as Hoeffding found, the variance sum over all i, j of (o(i) t(j))^2 / (B - 1).
        Of more than 512 rows some are taken, evenly.

        Args:
            outputs: Numbers [B, ...] with targets of that size, or scores of classes [B, C, ...] or
                [B, ..., C].
            targets: Numbers [B, ...], or classes [B, ...] of which negative ones do not count.
        """
        pair = _as_matrices(outputs, targets)
        if pair is None or len(pair[0]) <= 1 or pair[0].size > MAX_ELEMENTS:
            return None
        o, t = (rows - rows.mean(axis=0) for rows in pair)
        if not (np.isfinite(o).all() and np.isfinite(t).all()):
            return None
        variance = float(((o @ t.T) ** 2).sum()) / (len(o) - 1)
        return cls(float((o * t).sum()), variance, float((o * o).sum()), float((t * t).sum()))

    @property
    def share(self) -> float:
        """The correlation over all columns, from -1 to 1; 0 if nothing varies."""
        return self.together / (math.sqrt(self.of_outputs * self.of_targets) or math.inf)

    @property
    def deviation(self) -> float:
        """The standard deviation of `share` by chance; infinite if nothing varies."""
        size = math.sqrt(self.of_outputs * self.of_targets)
        return math.sqrt(self.variance) / size if size else math.inf


def _as_matrices(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> tuple[_Numbers, _Numbers] | None:
    """Return outputs and targets [rows, columns], classes as one-hot; None if they do not fit."""
    if targets.dtype.kind in "iu" and outputs.ndim == targets.ndim + 1:
        axis = 1 if outputs.shape[:1] + outputs.shape[2:] == targets.shape else -1
        scores = np.moveaxis(outputs, axis, -1)
        if scores.shape[:-1] != targets.shape:
            return None
        num_classes = scores.shape[-1]
        counts = (targets >= 0) & (targets < num_classes)
        chosen = _some(scores[counts]).astype(np.float64)
        # What all scores of a row have in common changes no probability.
        chosen -= chosen.mean(axis=1, keepdims=True)
        return chosen, np.eye(num_classes)[_some(targets[counts])]
    fits = outputs.size == targets.size and outputs.shape[:1] == targets.shape[:1]
    if not (fits and targets.ndim and targets.size):
        return None
    o, t = (_some(of.reshape(len(of), -1)).astype(np.float64) for of in (outputs, targets))
    return o, t


def _some(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return 512 rows at most, evenly spaced."""
    return rows[:: max(1, -(-len(rows) // _MOST_ROWS))]
