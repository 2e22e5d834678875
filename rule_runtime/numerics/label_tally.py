"""Counts of labels by class, and which classes are rarer than elsewhere."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["LabelTally", "rarest_class"]

_CHANCE: Final = 2
"""Rows of a class by which its count may differ by chance."""

_UNLIKE: Final = 3.0
"""Ratio of two shares of a class that are unlike."""

_MATTERS: Final = 0.2
"""Share of labels elsewhere that classes must have together whose lack here does harm."""

_MATTERS_ALONE: Final = 0.05
"""Share of labels elsewhere that a single such class must have."""


class LabelTally(NamedTuple):
    """What was counted so far of one tensor of labels.

    Attributes:
        classes: The classes seen [K], in order.
        labels: Labels of each [K].
        predicted: Those of them that came with a prediction [K].
        wrong: Those of them that were predicted wrongly [K].
    """

    classes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    wrong: npt.NDArray[np.int64]

    @classmethod
    def read(cls, columns: list[list[int]] | None) -> LabelTally:
        """Return a tally of remembered columns; an empty one of None.

        Args:
            columns: Lists of what the attributes hold.
        """
        return cls(*(np.array(column, np.int64) for column in columns or ([], [], [], [])))

    @property
    def total(self) -> int:
        """Number of labels, or of those that came with a prediction if that is more."""
        return int(max(self.labels.sum(), self.predicted.sum()))

    def plus(
        self,
        classes: npt.NDArray[np.int64],
        is_wrong: npt.NDArray[np.bool_] | None,
        *,
        is_new: bool,
    ) -> LabelTally:
        """Return the tally with some labels added.

        Args:
            classes: Their classes [N].
            is_wrong: Which of them are predicted wrongly [N]; None without predictions.
            is_new: Whether the rows were not counted before: only predictions of them are new.
        """
        known = np.unique(np.concatenate([self.classes, classes]))
        before, at = np.searchsorted(known, self.classes), np.searchsorted(known, classes)
        added = np.bincount(at, minlength=len(known))
        wrong = np.zeros_like(added)
        if is_wrong is not None:
            wrong = np.bincount(at[is_wrong], minlength=len(known))
        columns = [added * is_new, added * (is_wrong is not None), wrong]
        for column, old in zip(columns, self[1:], strict=True):
            column[before] += old
        return LabelTally(known, *columns)

    def rarer_than(self, other: LabelTally) -> npt.NDArray[np.bool_]:
        """Return which classes [K] are more than three times as rare as in another tally.

        Each is measured by the most frequent class of this tally. The counts may be off by two
        standard deviations (of a Poisson distribution), for and against.

        Args:
            other: The other tally.
        """
        elsewhere = np.zeros(len(self.classes))
        elsewhere[np.isin(self.classes, other.classes)] = other.labels[
            np.isin(other.classes, self.classes)
        ]
        most = int(self.labels.argmax())
        here = self.labels + 2 * np.sqrt(self.labels) + _CHANCE
        there = elsewhere - 2 * np.sqrt(elsewhere)
        rarer: npt.NDArray[np.bool_] = there * self.labels[most] > _UNLIKE * here * elsewhere[most]
        return rarer

    def lacks(self, other: LabelTally, ratio: float) -> bool:
        """Return whether classes that are too rare here, and more so than elsewhere, matter there.

        They do if together those that are more so have 20 % or more of the labels of the other
        tally, or one of them 5 %. Some of many classes, as letters of a text, may be rare here and
        not there without harm.

        Args:
            other: The other tally.
            ratio: The largest ratio of the counts of two classes that is no issue.
        """
        is_rarer = self.rarer_than(other)
        is_lacking = is_rarer & (int(self.labels.max()) > ratio * self.labels)
        shares = other.labels / max(int(other.labels.sum()), 1)
        rarer = shares[np.isin(other.classes, self.classes[is_rarer])].sum()
        most = shares[np.isin(other.classes, self.classes[is_lacking])].max(initial=0.0)
        return bool(is_lacking.any() and (rarer >= _MATTERS or most >= _MATTERS_ALONE))


def rarest_class(
    tally: LabelTally,
    beside: LabelTally | None,
    limit: float,
    enough: int,
    fewest: float,
) -> tuple[int, float, int]:
    """Return the rarest class that may be too rare, and by what ratio the largest exceeds it.

    Args:
        tally: The labels.
        beside: Labels of validation: classes that are rare there as well may be rare; None to
            compare with none.
        limit: The largest ratio that is no issue.
        enough: Labels from which a count is no chance.
        fewest: Labels from which on a class is not rare.

    Returns:
        The place of the class, the ratio, and rows that were added to its count for chance.
    """
    most = int(tally.labels.argmax())
    may_be_rare = tally.labels < fewest
    if beside is not None:
        may_be_rare &= tally.rarer_than(beside) & tally.lacks(beside, limit)
    least = int(np.where(may_be_rare, tally.labels, tally.labels[most]).argmin())
    chance = _CHANCE if tally.labels.sum() < enough else 0
    return least, float(tally.labels[most] / (tally.labels[least] + chance)), chance
