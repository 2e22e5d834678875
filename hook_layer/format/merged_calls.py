"""Shortens index files that are longer than readers accept, such as those of an unrolled loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from hook_layer.format.combined_statistics import combined_statistics
from hook_layer.format.errors import IndexTooLongError
from hook_layer.format.index import IndexFile
from hook_layer.format.reductions import base_tensor_name
from hook_layer.format.statistics_block import Shard, Statistics

__all__ = ["ShortenedIndex", "shortened"]

_NUMBERED: Final = re.compile(r"(.*(?<!Loss_)(?:in|out)puts?)_[0-9]+", re.DOTALL)
"""Inputs and outputs of a module are numbered through all its calls of a step.

Those of losses are not merged, because outputs and targets may have the same shape.
"""


class ShortenedIndex(NamedTuple):
    """The bytes of a readable index file, and the number of omitted tensors.

    Tensors are omitted if the file is too long even with merged calls.
    """

    data: bytes
    num_left_out: int


def shortened(index: IndexFile) -> ShortenedIndex:
    """Return an index file with one row for all similar tensors of a module's calls.

    If that is still too long, omit inputs and outputs of modules, then other tensors.

    Raises:
        IndexFileError: The file would be empty.
    """
    short = _with_merged_calls(index)
    names = list(dict.fromkeys(map(base_tensor_name, _names(short))))
    names.sort(key=lambda name: _NUMBERED.fullmatch(name) is not None)
    num_stored = len(names)
    while (data := _encoded(short)) is None:
        if num_stored == 1:
            raise IndexTooLongError("an index file of one tensor is longer than readers accept")
        num_stored //= 2
        short = _only(short, frozenset(names[:num_stored]))
    return ShortenedIndex(data, len(names) - num_stored)


def _encoded(index: IndexFile) -> bytes | None:
    try:
        return index.encode()
    except IndexTooLongError:
        return None


def _with_merged_calls(index: IndexFile) -> IndexFile:
    """Return the file with one row for all similar inputs, or outputs, of a module.

    Similar tensors have the same type and shape. Counts, bounds, sums and moments cover all.
    """
    first: dict[object, str] = {}
    stands_for = {
        name: first.setdefault(_kind(name, *described), name)
        for name, described in _described(index).items()
    }
    counts = Counter(stands_for.values())
    short = _only(index, frozenset(counts))
    old, new = index.statistics, short.statistics
    if old is not None and new is not None:
        numbers = {name: number for number, name in enumerate(new.tensors)}
        parts = [row for row, name in enumerate(old.tensors) if stands_for.get(name) in numbers]
        wholes = np.array([numbers[stands_for[old.tensors[row]]] for row in parts], np.intp)
        combined = combined_statistics(old.values[parts], wholes, len(numbers))
        is_merged = np.array([counts[name] > 1 for name in new.tensors], bool)
        values = np.where(is_merged[:, None], combined, new.values)
        short = replace(short, statistics=replace(new, values=values))
    return replace(short, merged={name: count for name, count in counts.items() if count > 1})


def _kind(name: str, dtype: str, shape: tuple[int, ...], shard: Shard | None) -> object:
    numbered = None if shard is not None else _NUMBERED.fullmatch(name)
    return name if numbered is None else (numbered[1], dtype, shape)


def _described(index: IndexFile) -> Mapping[str, tuple[str, tuple[int, ...], Shard | None]]:
    """Return type, shape and shard of each tensor by name, without reductions."""
    found = {row.name: ("", row.shape, None) for row in index.shapes}
    block = index.statistics
    if block is None:
        return found
    shards = block.shards or (None,) * len(block.tensors)
    rows = zip(block.dtypes, block.shapes, shards, strict=True)
    described = {**found, **dict(zip(block.tensors, rows, strict=True))}
    return {name: each for name, each in described.items() if base_tensor_name(name) == name}


def _names(index: IndexFile) -> list[str]:
    rows = () if index.statistics is None else index.statistics.tensors
    return [*rows, *(row.name for row in index.locations), *(row.name for row in index.shapes)]


def _only(index: IndexFile, names: frozenset[str]) -> IndexFile:
    """Return the file with only some of its tensors, and their reductions."""
    locations = tuple([row for row in index.locations if base_tensor_name(row.name) in names])
    return replace(
        index,
        event_file_name=index.event_file_name if locations else None,
        locations=locations,
        shapes=tuple([row for row in index.shapes if row.name in names]),
        statistics=None if index.statistics is None else _rows(index.statistics, names),
        first_rows={name: rows for name, rows in index.first_rows.items() if name in names},
        merged={name: count for name, count in index.merged.items() if name in names},
    )


def _rows(block: Statistics, names: frozenset[str]) -> Statistics:
    rows = [row for row, name in enumerate(block.tensors) if base_tensor_name(name) in names]
    return Statistics(
        block.columns,
        tuple([block.tensors[row] for row in rows]),
        tuple([block.dtypes[row] for row in rows]),
        tuple([block.shapes[row] for row in rows]),
        block.values[rows],
        tuple([block.crc32c[row] for row in rows]),
        tuple([block.shards[row] for row in rows]) if block.shards else (),
    )
