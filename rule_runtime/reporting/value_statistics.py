"""Computes statistics from values for files without any, such as the original client's."""

from __future__ import annotations

from typing import Final

import numpy as np

from hook_layer.format.errors import FormatError
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile, Statistics
from hook_layer.format.reductions import split_reduction_name
from hook_layer.storage.base import Store
from rule_runtime.trial.missing_statistics import computed_statistics

__all__ = ["MAX_VALUE_BYTES", "statistics_of_values"]

MAX_VALUE_BYTES: Final = 1 << 20
"""Longest value that is read."""


def statistics_of_values(store: Store, index: IndexFile) -> tuple[Statistics | None, int]:
    """Return the statistics of one file, None if it has no such data, and the bytes read.

    The statistics come from small values and reductions in event files.

    Raises:
        StorageError: If the storage fails, except for a missing object.
    """
    lengths: dict[str, int] = {}
    for row in index.locations:
        reduction = split_reduction_name(row.name)
        name = row.name if reduction is None else reduction[0]
        lengths[name] = lengths.get(name, 0) + row.length
    names = tuple(name for name, length in lengths.items() if length <= MAX_VALUE_BYTES)
    if not names:
        return None, 0
    try:
        rows = computed_statistics(store, index, names)
    except FormatError:
        return None, 0
    values = np.stack([rows[name] for name in names])
    num = len(names)
    unknown = ("",) * num, ((),) * num
    block = Statistics(STATISTICS_COLUMNS, names, *unknown, values, (None,) * num)
    return block, sum(lengths[name] for name in names)
