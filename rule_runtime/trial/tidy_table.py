"""Builds one table from the content of index files.

Shape legend: R = rows of the table, one for each (step, tensor, worker); F = files.

Consecutive files mostly have the same tensors, so the mapping to table rows is computed once for
each distinct tuple of names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import ObjectNotFoundError, Store
from rule_runtime.trial.event_reader import read_tensors
from rule_runtime.trial.layout import tensor_rows
from rule_runtime.trial.merged_shards import merged_by_step
from rule_runtime.trial.missing_statistics import computed_statistics
from rule_runtime.trial.step_index import StepFile

__all__ = ["TABLE_COLUMNS", "VALUE", "TidyTable", "check_columns", "tidy_table"]

_logger: Final = logging.getLogger("stepwatch")

VALUE: Final = "value"
"""The column with the value of one-element tensors."""

TABLE_COLUMNS: Final = (VALUE, *STATISTICS_COLUMNS)

_OF_VALUE: Final = ("size", "nan", "inf", "min")
"""Statistics that determine the value of a one-element tensor, except the sign of Inf."""

_CODES: Final = ("steps", "mode_steps", "modes", "workers", "tensors")
"""Members of a table with one number per row."""

_MAX_SCALAR_BYTES: Final = 512
"""Longest record of one element, without twice the length of its name."""


@dataclass(frozen=True, eq=False)
class TidyTable:
    """Statistics of tensors, one row for each (step, tensor, worker), in that order.

    Attributes:
        steps: Global step [R].
        mode_steps: Step within the mode [R].
        modes: Position of the row's mode in `mode_names` [R].
        workers: Position of the row's worker in `worker_names` [R].
        tensors: Position of the row's tensor in `tensor_names` [R].
        mode_names: Names of the modes.
        worker_names: Names of the workers, sorted.
        tensor_names: Names of the tensors, sorted.
        columns: The numbers by name, each [R]; NaN where one is not known.
    """

    steps: npt.NDArray[np.int64]
    mode_steps: npt.NDArray[np.int64]
    modes: npt.NDArray[np.intp]
    workers: npt.NDArray[np.intp]
    tensors: npt.NDArray[np.intp]
    mode_names: Sequence[str]
    worker_names: Sequence[str]
    tensor_names: Sequence[str]
    columns: dict[str, npt.NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.steps)


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of columns after a check."""
    wanted = tuple(names)
    for name in wanted:
        if name not in TABLE_COLUMNS:
            raise ValueError(
                f"there is no statistic {name!r}; valid are {', '.join(TABLE_COLUMNS)}"
            )
    return wanted


def tidy_table(
    store: Store, files: Sequence[StepFile], names: Iterable[str], columns: Iterable[str]
) -> TidyTable:
    """Return the statistics in files; shards of a tensor are merged.

    Event files are read only if the index lacks data: for files of the original client, and for the
    sign of an infinite value. Lost values are NaN, with a warning.
    """
    return _Collector(store, sorted(names), check_columns(columns)).table(merged_by_step(files))


@dataclass
class _Collector:
    """Collects the numbers file by file."""

    store: Store
    names: Sequence[str]
    columns: tuple[str, ...]
    _layouts: dict[tuple[int, int, int], _Layout] = field(default_factory=dict)
    _reported: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._codes = {name: code for code, name in enumerate(self.names)}
        has_value = VALUE in self.columns
        # The order of a set would vary between processes.
        wanted = dict.fromkeys((*self.columns, *(_OF_VALUE if has_value else ()), "size"))
        self._read_columns = tuple(name for name in wanted if name != VALUE)

    def table(self, files: Sequence[StepFile]) -> TidyTable:
        parsed = [(file, file.index) for file in files if file.index is not None]
        parsed.sort(key=lambda pair: (pair[0].step, pair[0].worker))
        workers = sorted({file.worker for file, _ in parsed})
        modes = sorted({index.mode for _, index in parsed}, key=lambda mode: int(mode.value))
        parts = [self._layout(index) for _, index in parsed]
        counts = [len(part.codes) for part in parts]
        numbers = [
            self._numbers(index, part) for (_, index), part in zip(parsed, parts, strict=True)
        ]

        def repeated(per_file: list[int]) -> npt.NDArray[np.int64]:
            return np.repeat(np.array(per_file, np.int64), counts)

        worker_codes = {name: code for code, name in enumerate(workers)}
        mode_codes: dict[ModeKeys, int] = {mode: code for code, mode in enumerate(modes)}
        table = TidyTable(
            steps=repeated([file.step for file, _ in parsed]),
            mode_steps=repeated([index.mode_step for _, index in parsed]),
            modes=repeated([mode_codes[index.mode] for _, index in parsed]),
            workers=repeated([worker_codes[file.worker] for file, _ in parsed]),
            tensors=np.concatenate([part.codes for part in parts] or [np.empty(0, np.intp)]),
            mode_names=[mode.name for mode in modes],
            worker_names=workers,
            tensor_names=self.names,
            columns=self._as_columns(numbers),
        )
        if VALUE in self.columns:
            of_row = repeated(list(range(len(parsed))))
            indexes = [index for _, index in parsed]
            table.columns[VALUE] = self._values(table, indexes, of_row)
        return self._ordered(table)

    def _layout(self, index: IndexFile) -> _Layout:
        block = () if index.statistics is None else index.statistics.tensors
        # Files that are parsed in sequence share equal objects, and all are kept.
        key = (id(block), id(index.locations), id(index.shapes))
        if key not in self._layouts:
            others = [row.name for row in index.locations] + [row.name for row in index.shapes]
            rows = tensor_rows(block, others)
            ordered = sorted(rows.keys() & self._codes, key=self._codes.__getitem__)
            self._layouts[key] = _Layout(
                np.array([self._codes[name] for name in ordered], np.intp),
                np.array([rows[name] for name in ordered], np.intp),
                (block, index.locations, index.shapes),
            )
        return self._layouts[key]

    def _numbers(self, index: IndexFile, layout: _Layout) -> npt.NDArray[np.float64]:
        """Return the statistics of one file's rows [rows, columns]."""
        numbers = np.full((len(layout.codes), len(self._read_columns)), np.nan)
        block = index.statistics
        if block is not None and len(block.values):
            for to, column in enumerate(self._read_columns):
                if column in block.columns:
                    numbers[:, to] = block.values[layout.rows, block.columns.index(column)]
            numbers[layout.rows < 0] = np.nan
        unknown = np.flatnonzero(np.isnan(numbers[:, self._read_columns.index("size")]))
        if len(unknown):
            self._compute(index, layout, unknown, numbers)
        return numbers

    def _compute(
        self,
        index: IndexFile,
        layout: _Layout,
        unknown: npt.NDArray[np.intp],
        numbers: npt.NDArray[np.float64],
    ) -> None:
        missing = {self.names[layout.codes[at]]: at for at in unknown}
        if self.columns == (VALUE,):
            is_long = {row.name for row in index.locations if not _may_be_scalar(*row)}
            missing = {name: at for name, at in missing.items() if name not in is_long}
        picked = [STATISTICS_COLUMNS.index(column) for column in self._read_columns]
        on_loss = partial(self._warn_of_loss, index)
        computed = computed_statistics(self.store, index, missing, on_loss=on_loss)
        for name, row in computed.items():
            numbers[missing[name]] = row[picked]

    def _warn_of_loss(self, index: IndexFile, error: Exception) -> None:
        """Warn about an event file, once."""
        if index.event_file_name not in self._reported:
            self._reported.add(index.event_file_name)
            _logger.warning("%s; what the table cannot have of it is NaN", error)

    def _as_columns(
        self, numbers: list[npt.NDArray[np.float64]]
    ) -> dict[str, npt.NDArray[np.float64]]:
        matrix = np.concatenate(numbers or [np.empty((0, len(self._read_columns)))])
        return {name: matrix[:, at].copy() for at, name in enumerate(self._read_columns)}

    def _values(
        self, table: TidyTable, indexes: list[IndexFile], of_row: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return the values of the rows with one-element tensors [R]."""
        is_scalar = table.columns["size"] == 1
        values = np.where(is_scalar, table.columns["min"], np.nan)
        for at in np.flatnonzero(is_scalar & (table.columns["inf"] == 1)):
            name = self.names[table.tensors[at]]
            values[at] = self._read_number(indexes[of_row[at]], name)
        return values

    def _read_number(self, index: IndexFile, name: str) -> float:
        value = None
        try:
            value = read_tensors(self.store, index, [name]).get(name)
        except (ObjectNotFoundError, FormatError) as error:
            self._warn_of_loss(index, error)
        if value is None or value.size != 1:
            return float("nan")
        return float(np.real(value.reshape(())))

    def _ordered(self, table: TidyTable) -> TidyTable:
        columns = {name: table.columns[name] for name in self.columns}
        order: Any = slice(None)
        if len(table.worker_names) > 1:
            order = np.lexsort((table.workers, table.tensors, table.steps))
        codes = {name: getattr(table, name)[order] for name in _CODES}
        columns = {name: column[order] for name, column in columns.items()}
        return replace(table, **codes, columns=columns)


@dataclass(frozen=True, eq=False)
class _Layout:
    """The tensors of a file by their codes, with their rows in its statistics.

    `kept` keeps the objects alive that identify the layout.
    """

    codes: npt.NDArray[np.intp]
    rows: npt.NDArray[np.intp]
    kept: tuple[Any, ...]


def _may_be_scalar(name: str, start: int, length: int) -> bool:
    del start
    return length <= _MAX_SCALAR_BYTES + 2 * len(name.encode())
