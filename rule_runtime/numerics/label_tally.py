"""Counts of labels by class, and which classes are rarer than in other labels."""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["MIN_CLASSES", "MIN_LABELS", "LabelTally", "is_repeated"]

_UNLIKE: Final = 3.0
"""Ratio of two shares of labels that are unlike."""
_MATTERS: Final = 0.05
"""Share of labels elsewhere from which the lack of a class here does harm."""
MIN_CLASSES: Final = 3
"""Classes whose numbers are no amounts; of two, 0 and 1 may be."""
_MAX_CLASSES: Final = 32
"""Classes of balanced labels; more whole numbers are likely amounts."""
_MAX_KEYS: Final = 256
"""Keys whose latest labels are remembered; it bounds the memory."""
MIN_LABELS: Final = 16
"""Labels that are hardly equal by chance."""


class LabelTally(NamedTuple):
    """What was counted so far of one tensor of labels.

    Attributes:
        classes: The classes seen [K], in order.
        labels: Labels of each [K].
        predicted: Labels of each that came with a prediction [K].
        wrong: Labels of each that were predicted wrongly [K].
    """

    classes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    wrong: npt.NDArray[np.int64]

    @classmethod
    def read(cls, columns: list[list[int]] | None) -> LabelTally:
        """Return a tally of remembered columns; an empty one of None."""
        return cls(*(np.array(column, np.int64) for column in columns or ([], [], [], [])))

    @property
    def total(self) -> int:
        """Number of labels, or of labels with a prediction if that is more."""
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
        standard deviations of a Poisson distribution. Classes with less than 5 % of the other
        labels do not count.
        """
        elsewhere = np.zeros(len(self.classes))
        elsewhere[np.isin(self.classes, other.classes)] = other.labels[
            np.isin(other.classes, self.classes)
        ]
        most = int(self.labels.argmax())
        here = self.labels + 2 * np.sqrt(np.maximum(self.labels, 1))
        there = elsewhere - 2 * np.sqrt(elsewhere)
        rarer = there * self.labels[most] > _UNLIKE * here * elsewhere[most]
        return np.asarray(rarer & (elsewhere >= _MATTERS * other.labels.sum()))

    def num_balanced_classes(self, min_labels: int) -> int | None:
        """Return the number of classes: all numbers from 0 on occur, each about as often.

        It is None if labels do not look like numbers of classes, or if fewer were counted.
        """
        num_classes = len(self.classes)
        if self.labels.sum() < min_labels or not MIN_CLASSES <= num_classes <= _MAX_CLASSES:
            return None
        is_balanced = self.labels.max() <= _UNLIKE * self.labels.min()
        return num_classes if is_balanced and self.classes[-1] == num_classes - 1 else None


def is_repeated(labels: npt.NDArray[Any], latest: dict[str, int], key: str) -> bool:
    """Return whether labels [N] are the latest ones of a key again, and remember them.

    The checksum of the latest labels of each of at most 256 keys is changed in place.
    """
    checksum = zlib.crc32(np.ascontiguousarray(labels).tobytes())
    before = latest.get(key)
    if before is not None or len(latest) < _MAX_KEYS:
        latest[key] = checksum
    can_differ = labels.size >= MIN_LABELS and bool((labels != labels.flat[0]).any())
    return before == checksum and can_differ
