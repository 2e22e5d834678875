"""Outputs and targets of a loss as numbers, and what formulas of losses need to know of them.

Shape legend: B = rows, C = columns or classes, ... = further dimensions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["LossPair", "log_softmax", "loss_pair"]

_Numbers = npt.NDArray[np.float64]

_MIN_ROWS: Final = 8
"""Rows; fewer match too many formulas."""
_MAX_ELEMENTS: Final = 1 << 20
"""Elements of outputs; more take too long."""
_SUM_ERROR: Final = 1e-3
"""Error of a sum of probabilities."""
_MATRIX: Final = 2
_LARGEST_EXPONENT: Final = 700.0


class LossPair:
    """Outputs and targets of a loss, as float64.

    One-hot targets become numbers of classes, and targets that are the same in all columns one
    column.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets [B, ...], or one target for all.

    Attributes:
        o: The outputs.
        t: The targets.
    """

    def __init__(self, outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> None:
        self.o: _Numbers = outputs.astype(np.float64)
        self.t: _Numbers = targets.astype(np.float64)
        is_one_hot = self.are_distributions and np.isin(self.t, (0, 1)).all()
        if is_one_hot and (self.t.sum(axis=1) == 1).all():
            self.t = self.t.argmax(axis=1).astype(np.float64)
        elif self.t.ndim == _MATRIX and (self.t == self.t[:, :1]).all():
            self.t = self.t[:, 0]  # broadcast over columns
        del self.are_distributions

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each output has its own target."""
        return self.o.size == self.t.size

    @cached_property
    def rows(self) -> tuple[_Numbers, _Numbers]:
        """Outputs and targets [B, C]."""
        return self.o.reshape(len(self.o), -1), self.t.reshape(len(self.o), -1)

    @cached_property
    def errors(self) -> _Numbers:
        """Outputs less targets [B, C]; less one target for all, if there is only one."""
        if self.t.size == 1:
            return self.o.reshape(len(self.o), -1) - self.t.reshape(())
        return self.rows[0] - self.rows[1]

    @cached_property
    def are_shares(self) -> bool:
        """Whether all targets lie between 0 and 1."""
        return bool(self.t.min() >= 0 and self.t.max() <= 1)

    @cached_property
    def are_distributions(self) -> bool:
        """Whether targets are probabilities of classes; rows of zeros are left out of a loss."""
        if self.o.shape != self.t.shape or self.o.ndim < _MATRIX or self.o.shape[1] == 1:
            return False
        sums = self.t.sum(axis=1)
        return bool(self.t.min() >= 0 and ((np.abs(sums - 1) < _SUM_ERROR) | (sums == 0)).all())

    @cached_property
    def are_yes_or_no(self) -> bool:
        """Whether targets are independent answers from 0 (no) to 1 (yes)."""
        return self.is_elementwise and self.are_shares and not self.are_distributions

    @cached_property
    def are_numbers(self) -> bool:
        """Whether targets are numbers outside of 0 to 1."""
        return self.is_elementwise and not self.are_shares

    @cached_property
    def are_probabilities(self) -> bool:
        """Whether all outputs lie between 0 and 1."""
        return bool(self.o.min() >= 0 and self.o.max() <= 1 + _SUM_ERROR)

    @cached_property
    def are_classes_likely(self) -> bool:
        """Whether outputs are probabilities that sum to 1 over the classes."""
        axis = self.class_axis
        if axis is None or not self.are_probabilities:
            return False
        return bool(np.allclose(self.o.sum(axis=axis), 1, atol=_SUM_ERROR))

    @cached_property
    def sigmoids(self) -> _Numbers:
        """Outputs as probabilities of yes [B, C]."""
        o = self.rows[0]
        clipped = np.clip(o, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        return o if self.are_probabilities else 1 / (1 + np.exp(-clipped))

    @cached_property
    def is_one_column(self) -> bool:
        """Whether there is one output in each row."""
        return self.o.size == len(self.o)

    @cached_property
    def class_axis(self) -> int | None:
        """The dimension of the classes, where targets are numbers of classes."""
        o, t = self.o, self.t
        for axis in sorted({1, o.ndim - 1} - {0}):
            classes = o.shape[axis] if axis < o.ndim else 0
            others = o.shape[:axis] + o.shape[axis + 1 :]
            if classes > 1 and others == t.shape:
                return axis if self._are_classes(classes) else None
        return None

    def _are_classes(self, num_classes: int) -> bool:
        t = self.t
        return bool(t.min() >= 0 and t.max() < num_classes and (t == np.floor(t)).all())

    @cached_property
    def own_index(self) -> npt.NDArray[np.int64]:
        """Numbers of classes, in the shape of outputs but for the class dimension, which is 1."""
        axis = self.class_axis or 0
        shape = (*self.o.shape[:axis], 1, *self.o.shape[axis + 1 :])
        return self.t.astype(np.int64).reshape(shape)

    def own(self, values: _Numbers) -> _Numbers:
        """Return the values of each row's own class.

        Args:
            values: Numbers in the shape of the outputs.
        """
        return np.take_along_axis(values, self.own_index, self.class_axis or 0)

    @cached_property
    def entropy_of_scores(self) -> float:
        """Cross entropy of the softmax of outputs over the classes."""
        return -float(self.own(log_softmax(self.o, self.class_axis or 0)).mean())


def log_softmax(scores: _Numbers, axis: int) -> _Numbers:
    """Return logarithms of the softmax of scores.

    Args:
        scores: Scores [...].
        axis: The dimension of the classes.
    """
    apart = scores - scores.max(axis=axis, keepdims=True)
    return np.asarray(apart - np.log(np.exp(apart).sum(axis=axis, keepdims=True)))


def loss_pair(outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> LossPair | None:
    """Return outputs and targets; None if they are too few or many, not finite, or constant.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets [B, ...], or one target for all.
    """
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "biuf" or not outputs.ndim:
        return None
    if not _MIN_ROWS <= len(outputs) <= outputs.size <= _MAX_ELEMENTS or not targets.size:
        return None
    is_known = np.isfinite(outputs).all() and np.isfinite(targets).all() and np.ptp(outputs) > 0
    varies = targets.size == 1 or np.ptp(targets.astype(np.float64)) > 0
    return LossPair(outputs, targets) if is_known and varies else None
