"""Tests whether outputs correlate with their targets, by the permutation test.

Shape legend: B = rows, C = classes, ... = further dimensions.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.loss_pair import loss_pair

__all__ = ["Association"]

_MOST_ROWS: Final = 512
"""Maximum number of compared rows; the time grows with their square."""


class Association(NamedTuple):
    """Covariance of outputs with their targets, and with those of other rows.

    Attributes:
        together: Sum over rows and columns of (output - mean) (target - mean).
        variance: Variance of that sum over permutations of each batch's targets.
        of_outputs: Sum of the squares of centred outputs.
        of_targets: Sum of the squares of centred targets.
    """

    together: float
    variance: float
    of_outputs: float
    of_targets: float

    @classmethod
    def of(cls, outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> Association | None:
        """Return the association of a batch; None if outputs and targets do not match.

        With centred rows o(i) and t(i), the sum of o(i) t(p(i)) over a random permutation p has
        mean 0. Its variance is the sum over all i, j of (o(i) t(j))^2 / (B - 1) (Hoeffding). At
        most 512 evenly spaced rows are used. Classes are one-hot rows.
        """
        pair = loss_pair(outputs, targets)
        if pair is None:
            return None
        if pair.by_class is not None:
            scores, classes = (_some(of) for of in pair.by_class)
            # A constant added to all scores of a row changes no probability.
            rows = scores - scores.mean(axis=1, keepdims=True), np.eye(scores.shape[1])[classes]
        elif pair.is_elementwise:
            rows = _some(pair.o), _some(pair.t)
        else:
            return None
        o, t = (of - of.mean(axis=0) for of in rows)
        variance = float(((o @ t.T) ** 2).sum()) / (len(o) - 1)
        return cls(float((o * t).sum()), variance, float((o * o).sum()), float((t * t).sum()))

    @property
    def correlation(self) -> float:
        """The correlation over all columns, from -1 to 1; 0 if nothing varies."""
        return self.together / (math.sqrt(self.of_outputs * self.of_targets) or math.inf)

    @property
    def deviation(self) -> float:
        """The standard deviation of `correlation` by chance; infinite if nothing varies."""
        size = math.sqrt(self.of_outputs * self.of_targets)
        return math.sqrt(self.variance) / size if size else math.inf


def _some(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return 512 rows at most, evenly spaced."""
    return rows[:: max(1, -(-len(rows) // _MOST_ROWS))]
