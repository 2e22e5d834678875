"""The course of a loss of validation beside that of training, in numbers.

Shape legend: P = latest passes of validation, oldest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Course"]


class Course(NamedTuple):
    """Losses of validation beside those of training.

    Attributes:
        passes: Losses of the latest passes [P].
        first: Loss of the first pass.
        lowest: Smallest loss of all passes.
        training: The loss of training.
        training_at_first: Loss of training at the first pass.
        start: Loss of training at the beginning.
        fall: How far the loss of training has fallen.
        rise: How far it has risen lately.
        noise: How much it scatters.
    """

    passes: npt.NDArray[np.float64]
    first: float
    lowest: float
    training: float
    training_at_first: float
    start: float
    fall: float
    rise: float
    noise: float

    @property
    def now(self) -> float:
        """Loss of the latest pass."""
        return float(self.passes[-1])

    def divided(self, by: float) -> Course:
        """Return the same with all losses of validation divided by a number."""
        passes, first, lowest = self.passes / by, self.first / by, self.lowest / by
        return self._replace(passes=passes, first=first, lowest=lowest)
