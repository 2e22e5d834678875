"""Tensors of a step as rows: names, workers, shapes and statistics as vectors.

Shape legend: R = selected rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from rule_runtime.trial.step_index import StepFile

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepReader

__all__ = ["Part", "TensorRow", "TensorRows", "index_of", "worst"]

Part = tuple[StepFile, tuple[str, ...], npt.NDArray[np.intp]]
"""An index file, names of some of its tensors, and their rows in its statistics (-1: none)."""


class TensorRow(NamedTuple):
    """One statistic of one tensor of one worker.

    Attributes:
        name: Name of the tensor.
        worker: Name of the worker.
        value: The statistic.
    """

    name: str
    worker: str
    value: float


class TensorRows:
    """The statistics of tensors of a step, one row for each (tensor, worker).

    Attributes:
        names: Name of each row's tensor [R].
        workers: Worker of each row [R].
    """

    def __init__(self, reader: StepReader, parts: Sequence[Part]) -> None:
        self._reader = reader
        self._parts = parts
        if len(parts) == 1:
            file, self.names, _ = parts[0]
            self.workers: tuple[str, ...] = (file.worker,) * len(self.names)
        else:
            self.names = tuple(name for _, names, _ in parts for name in names)
            self.workers = tuple(file.worker for file, names, _ in parts for _ in names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Name and worker of each row [R]."""
        return tuple(zip(self.names, self.workers, strict=True))

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return one statistic of every row [R]; NaN if unknown.

        Args:
            name: One of `STATISTICS_COLUMNS`.

        Raises:
            ValueError: If there is no such statistic.
        """
        if name not in STATISTICS_COLUMNS:
            raise ValueError(
                f"there is no statistic {name!r}; valid are {', '.join(STATISTICS_COLUMNS)}"
            )
        vectors = [self._column(part, name) for part in self._parts]
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(vectors) if vectors else np.empty(0)

    def largest(self, statistic: str) -> TensorRow | None:
        """Return the row with the largest statistic; None if all are unknown.

        Args:
            statistic: One of `STATISTICS_COLUMNS`, such as `l2`.

        Raises:
            ValueError: If there is no such statistic.
        """
        return self._extreme(statistic, largest=True)

    def smallest(self, statistic: str) -> TensorRow | None:
        """Return the row with the smallest statistic; see `largest`."""
        return self._extreme(statistic, largest=False)

    def _extreme(self, statistic: str, *, largest: bool) -> TensorRow | None:
        values = self.column(statistic)
        if np.isnan(values).all():  # also for no rows
            return None
        at = worst(self, values, largest=largest)
        return TensorRow(self.names[at], self.workers[at], float(values[at]))

    def select(self, rows: npt.ArrayLike) -> TensorRows:
        """Return some of the rows, in the given order.

        Args:
            rows: A mask [R] of booleans, or positions of rows.

        Raises:
            ValueError: If the length of the mask is not R.
            IndexError: If there is no such row.
        """
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise ValueError(f"a mask of shape {chosen.shape} does not fit {len(self)} rows")
            chosen = np.flatnonzero(chosen)
        positions = np.arange(len(self))[chosen.astype(np.intp).reshape(-1)]
        ends = np.cumsum([len(names) for _, names, _ in self._parts])
        parts_of = np.searchsorted(ends, positions, side="right")
        changes = np.flatnonzero(np.diff(parts_of)) + 1
        parts = []
        for of_part in np.split(positions, changes) if len(positions) else ():
            at = int(np.searchsorted(ends, of_part[0], side="right"))
            file, names, block = self._parts[at]
            inside = of_part - (ends[at] - len(names))
            parts.append((file, tuple(names[i] for i in inside), block[inside]))
        return TensorRows(self._reader, parts)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Shape of each row's tensor [R]; None if the index does not have it."""
        return tuple(shape for part in self._parts for shape in _shapes(part))

    @cached_property
    def dtypes(self) -> tuple[str | None, ...]:
        """Type of each row's tensor at capture [R]; None if the index lacks it."""
        return tuple(dtype for part in self._parts for dtype in _dtypes(part))

    @property
    def have_values(self) -> npt.NDArray[np.bool_]:
        """Whether the raw value of each row's tensor was saved [R]."""
        found: list[bool] = []
        for file, names, _ in self._parts:
            stored = frozenset(row.name for row in index_of(file).locations)
            found += [name in stored for name in names]
        return np.array(found, dtype=np.bool_)

    def _column(self, part: Part, name: str) -> npt.NDArray[np.float64]:
        file, names, rows = part
        block = index_of(file).statistics
        if block is None:
            return self._reader.computed(file, names, name)
        vector = _known(block.values, block.columns, rows, name)
        if not np.count_nonzero(np.isnan(vector)):  # nothing is missing without NaN
            return vector
        size = _known(block.values, block.columns, rows, "size")
        unknown = np.isnan(size)
        if np.count_nonzero(unknown):
            missing = np.flatnonzero(unknown)
            vector = vector.copy()
            vector[missing] = self._reader.computed(file, tuple(names[i] for i in missing), name)
        return vector


def index_of(file: StepFile) -> IndexFile:
    """Return the parsed index file.

    Raises:
        ValueError: If it could not be parsed.
    """
    if file.index is None:
        raise ValueError(f"{file.key} could not be parsed: {file.problem}")
    return file.index


def worst(rows: TensorRows, values: npt.ArrayLike, *, largest: bool) -> int:
    """Return the row of the extreme value; for ties, the first by tensor, then by worker.

    So the result does not depend on the order in which tensors were saved.

    Args:
        rows: The rows [R].
        values: A value of each row [R]; NaN is skipped.
        largest: True for the largest value, False for the smallest.

    Raises:
        ValueError: If every value is NaN, or there is no row.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows need as many values, not {numbers.shape}")
    known = numbers[~np.isnan(numbers)]
    if not known.size:
        raise ValueError("there is no extreme value: every value is NaN, or there is none")
    extreme = known.max() if largest else known.min()
    ties = np.flatnonzero(numbers == extreme)
    return int(min(ties, key=lambda at: (rows.names[at], rows.workers[at])))


def _shapes(part: Part) -> list[tuple[int, ...] | None]:
    file, names, rows = part
    index = index_of(file)
    known = {row.name: row.shape for row in index.shapes}
    block = None if index.statistics is None else index.statistics.shapes
    return [
        block[row] if block is not None and row >= 0 else known.get(name)
        for name, row in zip(names, rows, strict=True)
    ]


def _dtypes(part: Part) -> list[str | None]:
    file, _, rows = part
    block = index_of(file).statistics
    return [None if block is None or row < 0 else block.dtypes[row] for row in rows]


def _known(
    values: npt.NDArray[Any], columns: tuple[str, ...], rows: npt.NDArray[np.intp], name: str
) -> npt.NDArray[np.float64]:
    if name not in columns or not len(values):
        return np.full(len(rows), np.nan)
    vector: npt.NDArray[np.float64] = values[rows, columns.index(name)]
    lacking = rows < 0
    if np.count_nonzero(lacking):
        vector[lacking] = np.nan
    return vector
