"""How far answers agree with labels beyond chance, by the permutation test.

Shape legend: N = examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Agreement"]


class Agreement(NamedTuple):
    """How often answers are the labels, and how often they would be if labels were dealt out anew.

    Attributes:
        rows: Number of examples.
        right: How many answers are right.
        by_chance: How many would be on average, were the labels of each batch permuted.
        variance: The variance of that number.
        most: How many could be right at most, with as many answers of each class.
    """

    rows: float
    right: float
    by_chance: float
    variance: float
    most: float

    @classmethod
    def of(cls, labels: npt.NDArray[np.int64], answers: npt.NDArray[np.int64]) -> Agreement:
        """Return the agreement of a batch.

        With n rows, of which l(c) have label c and p(c) answer c, a permutation matches S / n rows
        on average, where S is the sum of l(c) p(c); and of ordered pairs of rows it matches both in
        (S^2 - sum (l p)^2 + sum l (l - 1) p (p - 1)) / (n (n - 1)).

        Args:
            labels: True classes [N].
            answers: Predicted classes [N].
        """
        num_rows = len(labels)
        if num_rows <= 1:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        classes, at = np.unique(np.concatenate([labels, answers]), return_inverse=True)
        of_labels = np.bincount(at[:num_rows], minlength=len(classes)).astype(np.float64)
        of_answers = np.bincount(at[num_rows:], minlength=len(classes)).astype(np.float64)
        both = of_labels * of_answers
        mean = float(both.sum()) / num_rows
        pairs = (
            both.sum() ** 2 - (both**2).sum() + (both * (of_labels - 1) * (of_answers - 1)).sum()
        )
        variance = float(pairs) / (num_rows * (num_rows - 1)) + mean - mean * mean
        right, most = (labels == answers).sum(), np.minimum(of_labels, of_answers).sum()
        return cls(num_rows, float(right), mean, max(variance, 0.0), float(most))

    @classmethod
    def total(cls, batches: Iterable[Iterable[float]]) -> Agreement:
        """Return the agreement of several batches together.

        Args:
            batches: The agreement of each.
        """
        columns = list(zip(*batches, strict=True)) or [(0.0,)] * len(cls._fields)
        return cls(*(math.fsum(column) for column in columns))

    @property
    def share(self) -> float:
        """Share of what chance leaves that is right: Cohen's kappa; 0 if chance leaves nothing."""
        left = self.rows - self.by_chance
        return (self.right - self.by_chance) / left if left > 0 else 0.0

    @property
    def z(self) -> float:
        """By how many standard deviations more are right than by chance; 0 of equal answers."""
        return (self.right - self.by_chance) / math.sqrt(self.variance) if self.variance else 0.0

    def shows(self, share: float, num_deviations: float) -> bool:
        """Return whether rows, and answers of each class, are enough to see a share beyond chance.

        Args:
            share: The share of what can be right at most with as many answers of each class.
            num_deviations: How many standard deviations of chance it must be.
        """
        deviations = num_deviations * math.sqrt(self.variance)
        return bool(deviations and share * (self.most - self.by_chance) >= deviations)
