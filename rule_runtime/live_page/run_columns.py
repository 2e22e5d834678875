"""Holds the statistics of a run's tensors as columns over its steps.

Shape legend: F = files of a block, S = statistics, T = tensors of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import Statistics
from rule_runtime.reporting.pixel_columns import Points
from rule_runtime.reporting.tensor_kinds import TensorGroup
from rule_runtime.trial.step_index import StepFile

__all__ = ["STATISTICS", "Block", "RunColumns"]

STATISTICS: Final = ("mean", "l2", "std", "min", "max")
"""The statistics that are held; `mean` is the value of a tensor with one element."""
_FEWEST_ROWS, _MOST_ROWS = 16, 256
"""Rows of a block: appending copies nothing, and a query joins few blocks."""
_MAX_NUMBERS: Final = 128 << 20
"""Numbers that are held of a run: 512 MB. A longer run holds extremes of neighbouring steps."""
_MAX_WIDTH: Final = 1 << 61
"""Largest number of steps of a row: wider ones would overflow 64 bits."""
_LARGEST: Final = float(np.finfo(np.float32).max)
"""Larger numbers are held as this one: single precision halves the memory."""


@dataclass(eq=False)
class Block:
    """The statistics of files that have the same tensors, worker and mode.

    Attributes:
        group: The tensors.
        steps: First global step of each row [F].
        times: When it began, seconds since 1970; NaN if unknown [F].
        low: Smallest statistics of each row's steps [F, S, T].
        high: Largest ones; the same array until rows stand for several steps.
        bad: Whether an element was NaN or infinite [F, T].
        size: Number of rows that are filled.
    """

    group: TensorGroup
    worker: str
    mode: str
    steps: npt.NDArray[np.int64]
    times: npt.NDArray[np.float64]
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    bad: npt.NDArray[np.bool_]
    size: int = 0

    @classmethod
    def of(cls, group: TensorGroup, worker: str, mode: str, rows: int) -> Block:
        """Return an empty block with space for some rows."""
        num = len(group.names)
        low = np.empty((rows, len(STATISTICS), num), np.float32)
        bad = np.empty((rows, num), np.bool_)
        return cls(group, worker, mode, np.empty(rows, np.int64), np.empty(rows), low, low, bad)

    @property
    def is_full(self) -> bool:
        """Whether no row is left."""
        return self.size == len(self.steps)

    @cached_property
    def num_numbers(self) -> int:
        """Numbers that the block holds."""
        return self.low.size + (self.high.size if self.high is not self.low else 0)

    def add(self, step: int, time: float | None, statistics: Statistics) -> None:
        """Fill the next row."""
        at, rows = self.size, self.group.rows
        self.steps[at], self.times[at] = step, np.nan if time is None else time
        for place, name in enumerate(STATISTICS):
            column = np.clip(statistics.column(name)[rows], -_LARGEST, _LARGEST)
            self.low[at, place] = column
        counts = statistics.column("nan")[rows] + statistics.column("inf")[rows]
        self.bad[at] = counts > 0
        self.size += 1

    @classmethod
    def folded(cls, blocks: Sequence[Block], width: int) -> Block:
        """Return blocks of the same tensors as one, whose rows stand for `width` steps each."""
        steps = np.concatenate([each.steps[: each.size] for each in blocks])
        order = np.argsort(steps, kind="stable")
        starts = np.flatnonzero(np.diff(steps[order] // width, prepend=-1))

        def ordered(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(each, name)[: each.size] for each in blocks])[order]

        return cls(
            blocks[0].group,
            blocks[0].worker,
            blocks[0].mode,
            steps[order][starts],
            ordered("times")[starts],
            np.fmin.reduceat(ordered("low"), starts),
            np.fmax.reduceat(ordered("high"), starts),
            np.logical_or.reduceat(ordered("bad"), starts),
            len(starts),
        )


@dataclass
class RunColumns:
    """The columns of a run.

    Attributes:
        version: Increases with each file.
        steps_per_row: Steps that a row of a long run stands for.
        num_left_out: Files for which there was no room.
    """

    blocks: list[Block] = field(default_factory=list)
    version: int = 0
    steps_per_row: int = 1
    num_left_out: int = 0

    def add(self, file: StepFile, mode: str, group: TensorGroup, statistics: Statistics) -> None:
        """Add the statistics of one worker at one step; in any order of steps.

        Args:
            file: The index file.
            mode: Name of the step's mode.
            group: The tensors.
            statistics: Their statistics.
        """
        worker, time = file.worker, None if file.index is None else file.index.time
        key = (group.names, worker, mode)
        block = self._open.get(key)
        if block is None or block.is_full:
            if not self._make_room():
                self.num_left_out += 1
                return
            rows = _FEWEST_ROWS if block is None else min(2 * block.size, _MOST_ROWS)
            block = self._open[key] = Block.of(group, worker, mode, rows)
            self.blocks.append(block)
        block.add(file.step, time, statistics)
        self.version += 1

    def points(self, tensor: str, statistic: str, worker: str, mode: str) -> Points:
        """Return a curve; it is empty if nothing is held.

        Raises:
            ValueError: There is no such statistic.
        """
        if statistic not in STATISTICS:
            raise ValueError(f"statistic={statistic!r} is none of {', '.join(STATISTICS)}")
        place = STATISTICS.index(statistic)
        parts = [
            (
                block.steps[: block.size],
                block.low[: block.size, place, at],
                block.high[: block.size, place, at],
                block.bad[: block.size, at],
            )
            for block in self.of(worker, mode)
            if (at := block.group.places.get(tensor)) is not None
        ]
        if not parts:
            return Points(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.bool_))
        steps, low, high, bad = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(steps, kind="stable")
        wide = np.float64
        return Points(steps[order], low[order].astype(wide), high[order].astype(wide), bad[order])

    def of(self, worker: str, mode: str) -> Iterator[Block]:
        """Yield the blocks of a worker and a mode."""
        return (each for each in self.blocks if each.worker == worker and each.mode == mode)

    @property
    def modes(self) -> list[str]:
        """Names of the modes, in the order in which they were found."""
        return list(dict.fromkeys(each.mode for each in self.blocks))

    @property
    def groups(self) -> list[TensorGroup]:
        """The different groups of tensors."""
        return list({each.group.names: each.group for each in self.blocks}.values())

    def steps_at(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the steps at some times; NaN outside of the run, or if times are unknown."""
        known = [(each.times[: each.size], each.steps[: each.size]) for each in self.blocks]
        if not known:
            return np.full(len(times), np.nan)
        began, steps = (np.concatenate(each) for each in zip(*known, strict=True))
        order = np.argsort(began)[: int(np.count_nonzero(~np.isnan(began)))]
        if not len(order):
            return np.full(len(times), np.nan)
        found: npt.NDArray[np.float64] = np.interp(
            times, began[order], steps[order], left=np.nan, right=np.nan
        )
        return found

    @cached_property
    def _open(self) -> dict[tuple[tuple[str, ...], str, str], Block]:
        return {}

    def _make_room(self) -> bool:
        """Return whether another block has room, after folding rows until there is."""
        while self._num_numbers >= _MAX_NUMBERS:
            if self.steps_per_row == _MAX_WIDTH or all(
                len(each.steps) == 1 for each in self.blocks
            ):
                return False
            self.steps_per_row *= 2
            alike: dict[tuple[object, ...], list[Block]] = {}
            for each in self.blocks:
                alike.setdefault((each.group.names, each.worker, each.mode), []).append(each)
            self._open.clear()
            self.blocks = []
            for key in list(alike):  # frees blocks as soon as they are folded
                self.blocks.append(Block.folded(alike.pop(key), self.steps_per_row))
        return True

    @property
    def _num_numbers(self) -> int:
        return sum(each.num_numbers for each in self.blocks)
