"""Adds tensors to a step whose files are stored already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hook_layer.capture.captured_step import StepRecord
from hook_layer.delivery.step_files import RunIdentity, encode_step
from hook_layer.format.index import IndexFile, Statistics, parse_index
from hook_layer.format.paths import event_key, index_key
from hook_layer.storage.base import Store

__all__ = ["extend_step"]


def extend_step(store: Store, worker: str, record: StepRecord) -> None:
    """Store the files of a step again, with more tensors; these replace others of their names.

    Readers of the files before still find all tensors that their index file names.

    Args:
        store: The root of the trial.
        worker: The worker that stored the step.
        record: The tensors; the mode of the stored step applies.

    Raises:
        StorageError: The files cannot be read or written.
        ValueError: The stored index file is not one of this version.
    """
    key = index_key(record.step, worker)
    old = parse_index(store.get(key), file=key)
    record.mode, record.mode_step = old.mode, old.mode_step
    encoded = encode_step(record)
    if encoded.is_empty:
        return
    events = b"" if old.event_file_name is None else store.get(old.event_file_name)
    if encoded.events.nbytes:
        store.put(event_key(record.step, worker), [events, *encoded.events])
    new = encoded.index(RunIdentity(old.run or "", worker), 1)
    store.put(key, _joined(old, new, len(events)).encode())


def _joined(old: IndexFile, new: IndexFile, offset: int) -> IndexFile:
    """Return the index of two parts of an event file; the second begins at a byte offset."""
    if old.statistics is None or new.statistics is None:
        raise ValueError("an index file has no statistics block")
    statistics = _joined_statistics(old.statistics, new.statistics)
    names = {*(row.name for row in new.locations), *(row.name for row in new.shapes)}
    moved = (row._replace(start=row.start + offset) for row in new.locations)
    return replace(
        old,
        event_file_name=new.event_file_name or old.event_file_name,
        locations=(*(row for row in old.locations if row.name not in names), *moved),
        shapes=(*(row for row in old.shapes if row.name not in names), *new.shapes),
        statistics=statistics,
        first_rows={**old.first_rows, **new.first_rows},
    )


def _joined_statistics(old: Statistics, new: Statistics) -> Statistics:
    if old.columns != new.columns:
        raise ValueError(f"the statistics have the columns {old.columns}, not {new.columns}")
    rows = [row for row, name in enumerate(old.tensors) if name not in new.tensors]
    shards = [old.shards[row] if old.shards else None for row in rows]
    shards.extend(new.shards or (None,) * len(new.tensors))
    return Statistics(
        columns=old.columns,
        tensors=(*(old.tensors[row] for row in rows), *new.tensors),
        dtypes=(*(old.dtypes[row] for row in rows), *new.dtypes),
        shapes=(*(old.shapes[row] for row in rows), *new.shapes),
        values=np.concatenate([old.values[rows], new.values]),
        crc32c=(*(old.crc32c[row] for row in rows), *new.crc32c),
        shards=tuple(shards) if any(shards) else (),
    )
