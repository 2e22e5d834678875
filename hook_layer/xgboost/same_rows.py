"""Whether two data sets of XGBoost are the same rows, in objects of their own.

Shape legend: R = rows that are compared, F = features.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xgboost import DMatrix, QuantileDMatrix
from xgboost.core import XGBoostError

from hook_layer.xgboost.distributed import rank_and_size

__all__ = ["SameRows"]

_LABELS: Final = ("label", "label_lower_bound", "label_upper_bound")
_MOST_ROWS: Final = 256
_MOST_ELEMENTS: Final = 1 << 20
_MOST_STORED: Final = 1 << 23
"""Numbers that are copied at most to look at some rows, where only all can be had."""


class SameRows:
    """Compares other data with one data set, whose labels and rows are read once."""

    def __init__(self, data: DMatrix) -> None:
        self._data = data
        self._labels: list[NDArray[Any]] | None = None
        self._sample: NDArray[np.float32] | None = None

    def are_in(self, other: object) -> bool:
        """Return whether other data has the same rows: the same labels, and features that agree.

        Labels alone may be alike by chance, if data is sorted by class or ranked. A
        `QuantileDMatrix` has its features in steps, so there only their order is compared. Where
        rows cannot be had, labels count alone, unless they are sorted or those of a ranking.

        Args:
            other: The other data; nothing is raised whatever it is.
        """
        try:
            return self._are_in(other)
        except Exception:  # noqa: BLE001 - of a class of somebody's own anything may be raised
            return False

    def _are_in(self, other: object) -> bool:
        data = self._data
        if not isinstance(other, DMatrix) or not data.num_row():
            return False
        if (other.num_row(), other.num_col()) != (data.num_row(), data.num_col()):
            return False
        if self._labels is None:
            self._labels = _labels(data)
        if not _equal(self._labels, _labels(other)):
            return False
        if self._sample is None:
            self._sample = _sample(data)
        sample = None if self._sample is None else _sample(other)
        if self._sample is None or sample is None:
            return _do_labels_suffice(data, self._labels)
        if any(isinstance(each, QuantileDMatrix) for each in (data, other)):
            return _rise_together(self._sample, sample)
        return np.array_equal(self._sample, sample, equal_nan=True)


def _labels(data: DMatrix) -> list[NDArray[Any]]:
    return [data.get_label(), *(data.get_float_info(name) for name in _LABELS[1:])]


def _equal(labels: list[NDArray[Any]], others: list[NDArray[Any]]) -> bool:
    pairs = zip(labels, others, strict=True)
    has_any = any(each.size for each in labels)
    return has_any and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _do_labels_suffice(data: DMatrix, labels: list[NDArray[Any]]) -> bool:
    """Return whether equal labels are evidence enough that the rows are equal."""
    is_ranking = len(data.get_uint_info("group_ptr")) > 0
    changes = np.diff(labels[0].ravel())
    return not is_ranking and bool((changes > 0).any() and (changes < 0).any())


def _sample(data: DMatrix) -> NDArray[np.float32] | None:
    """Return features of rows from all over the data [R, F]; what is missing is NaN.

    None where they cannot be had, or only together with too many others.
    """
    most = min(_MOST_ROWS, _MOST_ELEMENTS // max(data.num_col(), 1), data.num_row())
    rows = np.unique(np.linspace(0, data.num_row() - 1, most).astype(np.int64))
    if not rows.size:
        return None
    content = None
    # Making data may be something that all workers do together, reading it is not.
    if rank_and_size()[1] == 1 and not isinstance(data, QuantileDMatrix):
        try:
            content = data.slice(rows, allow_groups=True).get_data()
        except XGBoostError:
            content = None
    if content is None:
        if data.num_nonmissing() > _MOST_STORED:
            return None
        content = data.get_data()[rows]
    found = np.full((len(rows), data.num_col()), np.nan, np.float32)
    at = np.repeat(np.arange(len(rows)), np.diff(content.indptr))
    found[at, content.indices] = content.data
    return found


def _rise_together(values: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    """Return whether each feature orders the rows alike in both arrays [R, F]."""
    if not np.array_equal(np.isnan(values), np.isnan(others)):
        return False
    orders = np.lexsort((others, values), axis=0)
    return not (np.diff(np.take_along_axis(others, orders, axis=0), axis=0) < 0).any()
