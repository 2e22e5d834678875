"""Limits the stored rows of each value, so that the values of a step fit into a byte budget.

Values are cut along their first dimension, at capture and before they are copied to the host. The
last saved step of the same kind predicts the values that follow in the step.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.captured_step import CapturedTensor
from hook_layer.format.cut_values import CutValue

__all__ = ["DEFAULT_RUN_BYTES", "DEFAULT_STEP_BYTES", "ByteBudget"]

logger = logging.getLogger("stepwatch")

DEFAULT_STEP_BYTES: Final = 16 << 20
DEFAULT_RUN_BYTES: Final = 1 << 30
_MIN_STEPS: Final = DEFAULT_RUN_BYTES // DEFAULT_STEP_BYTES
_USABLE: Final = 15 / 16
"""The rest is for names and framing, so that the event file fits into the budget, too."""
_EXPECTED: Final = 7 / 8
"""Share of the usable bytes for values that the last step had; the rest is for others."""
_UNEXPECTED: Final = 1 / 8
"""Maximum share of the free bytes for a value that the last step did not have."""
_FLOAT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Value:
    """An uncut value: number of rows, bytes per row, and whether it belongs to a parameter."""

    num_rows: int
    row_bytes: int
    is_of_parameter: bool

    @property
    def nbytes(self) -> int:
        return self.num_rows * self.row_bytes

    @classmethod
    def of(cls, tensor: CapturedTensor) -> _Value:
        num_rows = tensor.shape[0] if tensor.shape else 1
        row_bytes = math.prod(tensor.shape[1:]) * _stored_bytes(tensor.dtype)
        return cls(num_rows, row_bytes, tensor.is_of_parameter)


class ByteBudget:
    """Decides how many rows of each value are stored.

    Small values are stored completely; large ones share the remaining bytes equally. Values with
    the same number of rows are cut to the same rows, so that outputs, labels and inputs of a batch
    still correspond. Parameters and their gradients are not part of a batch. Single numbers are
    always stored. Each step of a run gets a share of the run's remaining budget, as if as many
    steps followed as were saved before.

    Args:
        max_step_bytes: Maximum bytes of values per step; None for no limit.
        max_run_bytes: Maximum bytes of values per run; None for no limit.

    Attributes:
        cut: The cut values, by name.
        is_unlimited: Whether values of any size are stored in the open step.
    """

    def __init__(
        self, max_step_bytes: float | None = None, max_run_bytes: float | None = None
    ) -> None:
        self.cut: dict[str, CutValue] = {}
        self._max_step_bytes = max_step_bytes
        self._max_run_bytes = max_run_bytes
        self._num_steps = self._run_bytes = 0
        self._kind: Hashable = None
        self._last: dict[Hashable, dict[str, _Value]] = {}
        self._values: dict[str, _Value] = {}
        self._expected: dict[str, tuple[_Value, int]] = {}
        self._free = math.inf
        self.is_unlimited = True

    def begin_step(self, kind: Hashable) -> None:
        """Divide the budget of a step among its expected values."""
        self._kind, self._values, self._expected = kind, {}, {}
        self._free = self._limit()
        self.is_unlimited = self._free == math.inf
        last = self._last.get(kind)
        if last and not self.is_unlimited:
            rows = _divided(last, int(self._free * _EXPECTED))
            self._expected = {name: (value, rows[name]) for name, value in last.items()}
            self._free -= sum(value.row_bytes * rows[name] for name, value in last.items())

    def rows(self, name: str, tensor: CapturedTensor, max_elements: int | None) -> int | None:
        """Return the number of first rows of a value to capture; None for all.

        Args:
            name: Name of the tensor.
            tensor: Its type and shape.
            max_elements: Limit of its collections; None for no limit.
        """
        value = _Value.of(tensor)
        num_rows = value.num_rows
        if math.prod(tensor.shape) <= 1 and max_elements != 0:
            return None
        if max_elements is not None:
            num_rows = min(num_rows, max_elements // (math.prod(tensor.shape[1:]) or 1))
        if not self.is_unlimited and value.row_bytes:
            self._values[name] = replace(value, num_rows=num_rows)
            num_rows = min(num_rows, self._affordable(name, self._values[name]))
        return None if num_rows == value.num_rows else num_rows

    def end_step(self, tensors: Mapping[str, CapturedTensor]) -> None:
        """Cut values of a batch to the same number of rows, and account for the step."""
        for group in self._groups(tensors).values():
            cut = [tensor.rows for tensor in group if tensor.rows is not None]
            for tensor in group if cut else ():
                tensor.rows = min(cut)
        for name, tensor in tensors.items():
            if tensor.rows is not None:
                self._note_cut(name, tensor.rows, tensor.shape[0] if tensor.shape else 1)
        if not self.is_unlimited:
            self._last[self._kind] = self._values
            self._num_steps += 1
            self._run_bytes += sum(map(_stored_size, tensors.values()))

    def _limit(self) -> float:
        limit = math.inf if self._max_step_bytes is None else float(self._max_step_bytes)
        if self._max_run_bytes is not None:
            left = max(self._max_run_bytes - self._run_bytes, 0)
            limit = min(limit, left / max(_MIN_STEPS, self._num_steps))
        return limit * _USABLE

    def _affordable(self, name: str, value: _Value) -> int:
        expected, rows = self._expected.pop(name, (None, 0))
        if expected == value:
            return rows
        reserved = 0 if expected is None else expected.row_bytes * rows
        self._free += reserved
        allowed = reserved + (self._free - reserved) * _UNEXPECTED
        rows = min(value.num_rows, int(allowed / value.row_bytes))
        self._free -= rows * value.row_bytes
        return rows

    def _groups(
        self, tensors: Mapping[str, CapturedTensor]
    ) -> Mapping[tuple[int, ...], list[CapturedTensor]]:
        """Return groups of values that are cut to the same rows, by number of rows."""
        groups: dict[tuple[int, ...], list[CapturedTensor]] = defaultdict(list)
        if any(tensor.rows is not None for tensor in tensors.values()):
            for tensor in tensors.values():
                if tensor.raw is not None and not tensor.is_of_parameter:
                    groups[tensor.shape[:1]].append(tensor)
        return groups

    def _note_cut(self, name: str, rows: int, of_rows: int) -> None:
        known = self.cut.get(name)
        self.cut[name] = CutValue(name, rows, of_rows, 1 if known is None else known.steps + 1)
        if len(self.cut) == 1 and known is None:
            logger.info(
                "%.200s: the first %d of %d rows are stored, because of max_step_bytes, "
                "max_run_bytes or raw_max_elements; statistics cover the whole tensor; "
                "report() lists all such tensors",
                name,
                rows,
                of_rows,
            )


def _divided(values: Mapping[str, _Value], budget: int) -> dict[str, int]:
    """Return the stored rows of each value: small ones complete, large ones with equal bytes."""
    rows = np.array([value.num_rows for value in values.values()], np.int64)
    widths = np.array([value.row_bytes for value in values.values()], np.int64)
    if int((rows * widths).sum()) <= budget:
        return dict(zip(values, rows.tolist(), strict=True))
    # Parameters are not cut together with other values.
    keys = [-n if v.is_of_parameter else v.num_rows for n, v in enumerate(values.values(), 1)]
    groups = np.unique(np.array(keys), return_inverse=True)[1]
    low, high = 0, budget
    while low < high:  # search the maximum number of bytes per value
        level = (low + high + 1) // 2
        if int((_filled(rows, widths, groups, level) * widths).sum()) <= budget:
            low = level
        else:
            high = level - 1
    return dict(zip(values, _filled(rows, widths, groups, low).tolist(), strict=True))


def _filled(
    rows: NDArray[np.int64],
    widths: NDArray[np.int64],
    groups: NDArray[np.int64],
    level: int,
) -> NDArray[np.int64]:
    """Return the stored rows of each value if no value takes more bytes than `level`."""
    own = np.minimum(rows, level // widths)
    shared = np.full(groups.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(shared, groups[own > 0], own[own > 0])
    return np.where(own > 0, shared[groups], 0)


def _stored_size(tensor: CapturedTensor) -> int:
    if tensor.raw is None:
        return 0
    value = _Value.of(tensor)
    return value.row_bytes * (value.num_rows if tensor.rows is None else tensor.rows)


@cache
def _stored_bytes(dtype: str) -> int:
    """Return the bytes of an element in the event file; types unknown to numpy are widened."""
    if dtype.startswith(("bfloat", "float8")):
        return _FLOAT32_BYTES
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return _FLOAT32_BYTES
