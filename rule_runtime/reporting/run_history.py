"""Collects the statistics of a run over its steps, file by file.

It reads event files only for shares of zeros, if a finding is about them, and for small values if
index files hold no statistics. It keeps one number per loss, gradient and weight of a file. In a
long run it keeps only every second file, and so on, so that memory is bounded.

Shape legend: G = gradients, W = weights, T = tensors, C = statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile, Statistics
from hook_layer.storage.base import Store
from rule_runtime.reporting.downsampled_series import EvenSeries
from rule_runtime.reporting.tensor_extremes import TensorExtremes
from rule_runtime.reporting.tensor_kinds import TensorGroup, TensorKinds
from rule_runtime.reporting.value_statistics import statistics_of_values
from rule_runtime.reporting.zero_shares import ZeroShares
from rule_runtime.trial.cut_values import CutValues
from rule_runtime.trial.step_index import StepFile

__all__ = ["MAX_POINTS", "RunHistory", "ScalarKey", "StepNorms", "WatchedRow"]

MAX_POINTS: Final = 2000
"""Files whose norms are kept; each loss keeps twice as many numbers."""
_MAX_SCALARS: Final = 64
"""Losses, metrics and other scalars whose curves are kept."""
_MAX_NORMS: Final = 24 << 20
"""Number of norms that are kept: about 100 MB."""
_MAX_NORM: Final = float(np.finfo(np.float32).max)
"""Larger norms are kept as this one: they are finite, and single precision halves the memory."""

Rows = npt.NDArray[np.float64]


class ScalarKey(NamedTuple):
    """A curve: its kind, tensor and mode."""

    kind: str
    tensor: str
    mode: str


class WatchedRow(NamedTuple):
    """A watched tensor at a step: the mode, the step within it, and the statistics [C]."""

    mode: str
    mode_step: int
    row: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepNorms:
    """Norms of one step.

    Attributes:
        step: Global step.
        group: The tensors.
        gradients: Norm of each gradient [G]; Inf if an element is not finite.
        weights: Norm of each weight [W]; Inf if an element is not finite.
        learning_rate: The learning rate; None if it was not saved.
    """

    step: int
    group: TensorGroup
    gradients: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    learning_rate: float | None


@dataclass
class RunHistory:
    """The numbers of a run over its steps.

    Attributes:
        watched: Tensors of findings by worker; all their statistics are kept.
        worker: The worker whose curves are kept; by default, that of the first file.
        rows: Statistics of the watched tensors by step, worker and tensor.
        extremes: The extremes of each tensor over all workers.
        num_bytes: Total size of the files and values that were read.
        problems: Problems of the first few files that cannot be parsed.
    """

    store: Store
    watched: Mapping[str, Collection[str]] = field(default_factory=dict)
    worker: str | None = None
    scalars: dict[ScalarKey, EvenSeries[float | None]] = field(default_factory=dict)
    norms: EvenSeries[StepNorms] = field(default_factory=EvenSeries)
    rows: dict[tuple[str, str], dict[int, WatchedRow]] = field(default_factory=dict)
    extremes: TensorExtremes = field(default_factory=TensorExtremes)
    num_bytes: int = 0
    without_statistics: int = 0
    cut: CutValues = field(default_factory=CutValues)
    problems: list[str] = field(default_factory=list)
    left_out_scalars: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kinds = TensorKinds(self.store)
        self.zero_shares = ZeroShares(self.store)

    def add(self, file: StepFile) -> None:
        """Add the file of one worker at one step; in any order of steps."""
        self.num_bytes += file.num_bytes
        self.cut.add((file,))
        if file.index is None:
            self.problems += [file.problem or file.key] if len(self.problems) < 5 else []  # noqa: PLR2004 - a few suffice
            return
        mode = file.index.mode.name
        block = file.index.statistics
        if block is None or not len(block.tensors):
            self.without_statistics += 1
            block, num_bytes = statistics_of_values(self.store, file.index)
            self.num_bytes += num_bytes
        if block is None:
            return
        group = self.kinds.group(block.tensors)
        rows = _rows(block, group)
        self.extremes.add(file.step, group.names, rows)
        self.worker = self.worker or file.worker
        if file.worker == self.worker:
            self._add_scalars(file.step, mode, group, rows)
            self._add_norms(file.step, group, rows)
        self._keep_watched(file, file.index, group, rows)

    def watch(self, file: StepFile) -> None:
        """Add a file's data of the watched tensors only.

        The file may have been added before the tensors were watched.
        """
        block = None if file.index is None else file.index.statistics
        if file.index is not None and block is not None and len(block.tensors):
            group = self.kinds.group(block.tensors)
            self._keep_watched(file, file.index, group, _rows(block, group))

    def _keep_watched(
        self, file: StepFile, index: IndexFile, group: TensorGroup, rows: Rows
    ) -> None:
        for tensor in self.watched.get(file.worker, ()):
            if tensor in group.places:
                row = rows[group.places[tensor]].copy()
                of_tensor = self.rows.setdefault((file.worker, tensor), {})
                of_tensor[file.step] = WatchedRow(index.mode.name, index.mode_step, row)
                self.zero_shares.add(file, tensor)

    def _add_scalars(self, step: int, mode: str, group: TensorGroup, rows: Rows) -> None:
        for kind, places in group.scalars.items():
            for at in places:
                key = ScalarKey(kind, group.names[at], mode)
                if key not in self.scalars and len(self.scalars) >= _MAX_SCALARS:
                    self.left_out_scalars.add(key.tensor)
                    continue
                curve = self.scalars.setdefault(key, EvenSeries())
                curve.offer(step, number_of(rows[at]), 2 * MAX_POINTS)

    def _add_norms(self, step: int, group: TensorGroup, rows: Rows) -> None:
        if not len(group.gradients) and not len(group.weights):
            return
        norms = np.minimum(rows[:, _AT["l2"]], _MAX_NORM).astype(np.float32)
        norms[(rows[:, _AT["nan"]] > 0) | (rows[:, _AT["inf"]] > 0)] = np.inf
        rates = [number_of(rows[at]) for at in group.learning_rates]
        rate = next((rate for rate in rates if rate is not None), None)
        each = len(group.gradients) + len(group.weights)
        limit = min(2 * MAX_POINTS, _MAX_NORMS // each)
        found = StepNorms(step, group, norms[group.gradients], norms[group.weights], rate)
        self.norms.offer(step, found, limit)


def number_of(row: npt.NDArray[np.float64]) -> float | None:
    """Return the value of one element, or the mean, from statistics [C]; None if not finite."""
    if row[_AT["nan"]] or row[_AT["inf"]]:
        return None
    number = float(row[_AT["min"] if row[_AT["size"]] == 1 else _AT["mean"]])
    return number if np.isfinite(number) else None


def _rows(block: Statistics, group: TensorGroup) -> Rows:
    """Return the statistics of a group's tensors in the order of `STATISTICS_COLUMNS` [T, C]."""
    if block.columns[: len(STATISTICS_COLUMNS)] == STATISTICS_COLUMNS:
        return block.values[group.rows, : len(STATISTICS_COLUMNS)]
    columns = [block.column(name)[group.rows] for name in STATISTICS_COLUMNS]
    return np.stack(columns, axis=1)


_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}
