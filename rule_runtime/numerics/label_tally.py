"""Counts labels by class, and finds classes that are rarer than in other labels."""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["MIN_CLASSES", "MIN_ELEMENTS", "LabelTally", "is_repeated"]

_UNLIKE: Final = 3.0
"""Ratio from which two shares of labels differ."""
_MATTERS: Final = 0.05
"""Minimum share of a class elsewhere; lack of rarer classes is harmless."""
MIN_CLASSES: Final = 3
"""Minimum number of classes; labels 0 and 1 may be amounts."""
_MAX_CLASSES: Final = 32
"""Maximum number of balanced classes; more distinct integers are probably amounts."""
_MAX_KEYS: Final = 256
"""Maximum number of keys with stored latest labels; it bounds the memory."""
MIN_ELEMENTS: Final = 16
"""Minimum numbers that are unlikely to be equal, or within a range, by chance."""


class LabelTally(NamedTuple):
    """The counts so far of one label tensor.

    Attributes:
        classes: The classes seen [K], sorted.
        labels: Number of labels of each [K].
        predicted: Number of labels of each with a prediction [K].
        wrong: Number of labels of each that were predicted incorrectly [K].
    """

    classes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    wrong: npt.NDArray[np.int64]

    @classmethod
    def read(cls, columns: list[list[int]] | None) -> LabelTally:
        """Return a tally from its columns; None gives an empty one."""
        return cls(*(np.array(column, np.int64) for column in columns or ([], [], [], [])))

    @property
    def total(self) -> int:
        """Number of labels, or of labels with a prediction if larger."""
        return int(max(self.labels.sum(), self.predicted.sum()))

    def plus(
        self,
        classes: npt.NDArray[np.int64],
        is_wrong: npt.NDArray[np.bool_] | None,
        *,
        is_new: bool,
    ) -> LabelTally:
        """Return the tally with further labels: their classes [N], and which predictions are wrong.

        Of rows that were counted before, only the predictions are added.
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
        """Return which classes [K] are more than three times rarer than in another tally.

        Counts are relative to the most frequent class of this tally. Two standard deviations of a
        Poisson distribution are tolerated. Classes with less than 5 % of the other labels are
        ignored.
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
        """Return the number of classes if all numbers from 0 occur about equally often.

        It is None if labels do not look like class numbers, or too few were counted.
        """
        num_classes = len(self.classes)
        if self.labels.sum() < min_labels or not MIN_CLASSES <= num_classes <= _MAX_CLASSES:
            return None
        is_balanced = self.labels.max() <= _UNLIKE * self.labels.min()
        return num_classes if is_balanced and self.classes[-1] == num_classes - 1 else None


def is_repeated(labels: npt.NDArray[Any], latest: dict[str, int], key: str) -> bool:
    """Return whether labels [N] repeat the latest ones of a key, and store them.

    It changes `latest` in place: a checksum for each of at most 256 keys.
    """
    checksum = zlib.crc32(np.ascontiguousarray(labels).tobytes())
    before = latest.get(key)
    if before is not None or len(latest) < _MAX_KEYS:
        latest[key] = checksum
    can_differ = labels.size >= MIN_ELEMENTS and bool((labels != labels.flat[0]).any())
    return before == checksum and can_differ
