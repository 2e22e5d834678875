"""Merges the statistics of shards, which several ranks saved, into those of whole tensors.

Shape legend: F = index files, T = whole tensors, C = columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.combined_statistics import combined_statistics
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile, TensorLocation, TensorShape
from hook_layer.format.reductions import base_tensor_name
from hook_layer.format.statistics_block import Shard, Statistics
from rule_runtime.trial.step_index import StepFile

__all__ = ["merged_by_step", "with_merged_shards"]

_MAX_REMEMBERED: Final = 64


def with_merged_shards(files: Mapping[str, StepFile]) -> Mapping[str, StepFile]:
    """Return the index files of a step with one row for each tensor that is divided among ranks.

    The row is in the file of the first worker with a part. The values of parts are removed, because
    they are not those of the tensor.
    """
    if not any(_has_shards(file) for file in files.values()):
        return files
    indexes = [file.index for file in files.values()]
    merging = _merging(tuple(map(_described, indexes)))
    statistics = merging.statistics(indexes)
    return {
        worker: replace(file, index=_merged(file.index, block, statistics))
        for (worker, file), block in zip(files.items(), merging.blocks, strict=True)
    }


def merged_by_step(files: Iterable[StepFile]) -> list[StepFile]:
    """Return index files of several steps with one row for each divided tensor."""
    steps: dict[int, dict[str, StepFile]] = {}
    for file in sorted(files, key=lambda file: (file.step, file.worker)):
        steps.setdefault(file.step, {})[file.worker] = file
    return [file for step in steps.values() for file in with_merged_shards(step).values()]


def _has_shards(file: StepFile) -> bool:
    block = None if file.index is None else file.index.statistics
    return block is not None and bool(block.shards)


class _Described(NamedTuple):
    """Names, types, shapes and shards of the rows of an index file's statistics."""

    tensors: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    shards: tuple[Shard | None, ...] = ()


def _described(index: IndexFile | None) -> _Described:
    block = None if index is None else index.statistics
    if block is None:
        return _Described()
    return _Described(block.tensors, block.dtypes, block.shapes, block.shards)


@dataclass(frozen=True, eq=False)
class _MergedBlock:
    """The K rows of one file's statistics after parts are merged.

    Attributes:
        rows: Row of each in the stored file [K].
        places: Positions of merged tensors among them [M].
        numbers: Numbers of these tensors [M].
        tensors: Names [K].
        dtypes: Types [K].
        shapes: Shapes [K].
        divided: Names of all tensors that have parts in the file.
    """

    rows: npt.NDArray[np.intp]
    places: npt.NDArray[np.intp]
    numbers: npt.NDArray[np.intp]
    tensors: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    divided: frozenset[str]


class _Merging:
    """Maps the rows of a step's files to whole tensors; reused for many steps.

    Attributes:
        blocks: The rows of each file after parts are merged [F].
    """

    def __init__(self, described: tuple[_Described, ...]) -> None:
        self._numbers: dict[str, int] = {}
        seen: set[tuple[str, tuple[int, ...]]] = set()
        parts: list[tuple[int, int, int]] = []
        blocks = []
        for at, rows in enumerate(described):
            own: dict[int, int] = {}  # rows of tensors whose first part is in this file
            others: set[int] = set()
            for row, (name, shard) in enumerate(zip(rows.tensors, rows.shards, strict=False)):
                if shard is None or shard.part is None:
                    continue
                is_first = name not in self._numbers
                number = self._numbers.setdefault(name, len(self._numbers))
                if is_first:
                    own[row] = number
                else:
                    others.add(row)
                if (name, shard.part) not in seen:  # other ranks may have the same part
                    seen.add((name, shard.part))
                    parts.append((at, row, number))
            blocks.append(_merged_block(rows, own, others))
        self.blocks = tuple(blocks)
        self._files, self._rows, self._tensors = np.array(parts, np.intp).reshape(-1, 3).T

    def statistics(self, indexes: Sequence[IndexFile | None]) -> npt.NDArray[np.float64]:
        """Return the statistics of the tensors, [T, C]."""
        parts = np.full((len(self._rows), len(STATISTICS_COLUMNS)), np.nan)
        for at, index in enumerate(indexes):
            block = None if index is None else index.statistics
            chosen = self._files == at
            if block is not None and chosen.any():
                columns = [block.column(name)[self._rows[chosen]] for name in STATISTICS_COLUMNS]
                parts[chosen] = np.stack(columns, axis=1)
        return combined_statistics(parts, self._tensors, len(self._numbers))


def _merged_block(rows: _Described, own: Mapping[int, int], others: set[int]) -> _MergedBlock:
    kept = [row for row in range(len(rows.tensors)) if row not in others]
    places = [place for place, row in enumerate(kept) if row in own]
    shapes = [rows.shapes[row] for row in kept]
    for place in places:
        shard = rows.shards[kept[place]]
        shapes[place] = shapes[place] if shard is None else shard.shape
    return _MergedBlock(
        np.array(kept, np.intp),
        np.array(places, np.intp),
        np.array([own[kept[place]] for place in places], np.intp),
        tuple([rows.tensors[row] for row in kept]),
        tuple([rows.dtypes[row] for row in kept]),
        tuple(shapes),
        frozenset(rows.tensors[row] for row in (*own, *others)),
    )


_merging: Final = lru_cache(maxsize=_MAX_REMEMBERED)(_Merging)


def _merged(
    index: IndexFile | None, block: _MergedBlock, statistics: npt.NDArray[np.float64]
) -> IndexFile | None:
    """Return a file with rows of whole tensors instead of rows of their parts."""
    if index is None or index.statistics is None or not block.divided:
        return index
    stored = index.statistics
    values = stored.values[block.rows]
    columns = [STATISTICS_COLUMNS.index(name) for name in stored.columns]
    values[block.places] = statistics[block.numbers][:, columns]
    checksums = [stored.crc32c[row] for row in block.rows]
    for place in block.places:
        checksums[place] = None
    return replace(
        index,
        locations=_located(index.locations, block.divided),
        shapes=_shaped(index.shapes, block.divided),
        statistics=Statistics(
            stored.columns, block.tensors, block.dtypes, block.shapes, values, tuple(checksums)
        ),
    )


# Readers process files with the same list objects only once.


@lru_cache(maxsize=_MAX_REMEMBERED)
def _located(
    rows: tuple[TensorLocation, ...], divided: frozenset[str]
) -> tuple[TensorLocation, ...]:
    return tuple([row for row in rows if base_tensor_name(row.name) not in divided])


@lru_cache(maxsize=_MAX_REMEMBERED)
def _shaped(rows: tuple[TensorShape, ...], divided: frozenset[str]) -> tuple[TensorShape, ...]:
    return tuple([row for row in rows if row.name not in divided])
