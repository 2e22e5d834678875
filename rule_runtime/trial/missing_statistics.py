"""Computes statistics for index files without any, such as those of the original client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile
from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.storage.base import ObjectNotFoundError, Store
from rule_runtime.trial.event_reader import MAX_RECORD_BYTES, iter_tensors
from rule_runtime.trial.tensor_statistics import tensor_statistics

__all__ = ["computed_statistics"]

_FROM_REDUCTIONS: Final = {
    "min": ("min", False),
    "max": ("max", False),
    "mean": ("mean", False),
    "abs_mean": ("mean", True),
    "l1": ("sum", True),
}
"""Statistics that equal a stored reduction.

`std` is excluded: PyTorch uses the sample and numpy the population. `l1` and `l2` are excluded:
some frameworks use matrix norms.
"""


def computed_statistics(
    store: Store,
    index: IndexFile,
    names: Iterable[str],
    *,
    on_loss: Callable[[Exception], None] | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the statistics of tensors, each [C], from their values, otherwise from reductions.

    Unknown statistics are NaN. Values come first, because reductions include non-finite elements.

    Args:
        store: The trial's root.
        index: The index file with the positions of values and reductions.
        names: Names of the tensors.
        on_loss: Called with the reason if an event file is missing or damaged; lost statistics are
            NaN. By default, a missing file gives NaN silently.

    Raises:
        RecordError: Without `on_loss`, if the event file is damaged or a record is longer than
            `MAX_RECORD_BYTES`.
    """
    wanted = list(names)
    rows: dict[str, npt.NDArray[np.float64]] = {}
    for name, value in _read(store, index, wanted, on_loss):
        rows[name] = tensor_statistics(value)
        del value  # frees it before the next read: all tensors together may not fit in memory
    rest = [name for name in wanted if name not in rows]
    if rest:
        records = {
            reduction_tensor_name(name, reduction, absolute=absolute): name
            for name in rest
            for reduction, absolute in _FROM_REDUCTIONS.values()
        }
        reductions = {
            name: value.reshape(-1)[:1].copy()
            for name, value in _read(store, index, records, on_loss)
            if value.size == 1
        }
        for name in rest:
            rows[name] = _from_reductions(name, reductions)
    return rows


def _read(
    store: Store,
    index: IndexFile,
    names: Iterable[str],
    on_loss: Callable[[Exception], None] | None,
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    try:
        yield from iter_tensors(store, index, names, max_record_bytes=MAX_RECORD_BYTES)
    except (ObjectNotFoundError, FormatError) as error:
        if on_loss is not None:
            on_loss(error)
        elif isinstance(error, FormatError):
            raise


def _from_reductions(
    name: str, reductions: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.float64]:
    row = dict.fromkeys(STATISTICS_COLUMNS, math.nan)
    for column, (reduction, absolute) in _FROM_REDUCTIONS.items():
        stored = reductions.get(reduction_tensor_name(name, reduction, absolute=absolute))
        if stored is not None:
            row[column] = float(stored[0])
    known = [row[column] for column in _FROM_REDUCTIONS if not math.isnan(row[column])]
    stored_count = sum(
        reduction_tensor_name(name, reduction, absolute=absolute) in reductions
        for reduction, absolute in _FROM_REDUCTIONS.values()
    )
    # These propagate NaN, so NaN in one means at least one NaN element. Maximum and minimum show
    # only an infinity of their own sign, sums and means show both.
    if stored_count:
        row["nan"] = float(len(known) < stored_count)
        if any(math.isinf(value) for value in known):
            row["inf"] = 1.0
        elif any(math.isfinite(row[column]) for column in ("mean", "abs_mean", "l1")):
            row["inf"] = 0.0
    for column in _FROM_REDUCTIONS:
        if not math.isfinite(row[column]):
            row[column] = math.nan
    return np.array([row[column] for column in STATISTICS_COLUMNS])
