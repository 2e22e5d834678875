"""Copies a run, also during training, so that the copy can be read like the run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from hook_layer.format.paths import (
    COLLECTIONS_PREFIX,
    END_MARKER,
    JOB_FILE,
    STOP_FILE,
    IndexName,
    event_key,
)
from hook_layer.storage.base import AppendStore, ObjectNotFoundError, Store
from rule_runtime.trial.run_files import named_run
from rule_runtime.trial.step_index import list_index_files

__all__ = ["Snapshot", "copy_run"]

_THREADS: Final = 8
_PIECE_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Snapshot:
    """The result of a copy.

    Attributes:
        num_files: Index files in the copy, one per step and worker.
        num_new: How many of these are new.
        has_ended: Whether the training has ended.
    """

    num_files: int
    num_new: int
    has_ended: bool


def copy_run(
    source: Store,
    target: AppendStore,
    *,
    first_step: int = 0,
    last_step: int | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_copied: Callable[[str], None] = lambda _: None,
) -> Snapshot:
    """Copy a run; files that were copied before are not copied again.

    Each index file is copied after its event file. The end marker, if it existed at the beginning,
    is copied last. So readers of the copy see only whole steps.

    Args:
        source: The trial's root.
        target: Store of the copy.
        first_step: First global step to copy.
        last_step: Last global step to copy; None for all.
        on_start: Called with the number of index files to copy.
        on_copied: Called with the key of each copied file.

    Raises:
        ValueError: The copy would be inside another run, or the source holds no step.
        StorageError: A file cannot be read or written.
    """
    _check_target(source, target)
    end_marker = _get(source, END_MARKER)
    found = {
        key: name
        for key, name in list_index_files(source, after_step=first_step - 1)
        if last_step is None or name.step <= last_step
    }
    if not found:
        raise ValueError(f"{source.uri} holds no step to copy")
    missing = {key: name for key, name in found.items() if not target.exists(key)}
    on_start(len(missing))
    for key in (JOB_FILE, STOP_FILE, *source.list(COLLECTIONS_PREFIX)):
        _copy(source, target, key)
    with ThreadPoolExecutor(_THREADS) as pool:
        for key in pool.map(partial(_copy_step, source, target), missing.items()):
            on_copied(key)
    if end_marker is not None:
        target.put(END_MARKER, end_marker)
    return Snapshot(len(found), len(missing), end_marker is not None)


def _check_target(source: Store, target: Store) -> None:
    there, ours = named_run(target), named_run(source)
    if target.exists(JOB_FILE) and there != ours:
        raise ValueError(
            f"{target.uri} holds another run, {there}; give an empty folder for the run {ours}"
        )


def _copy_step(source: Store, target: AppendStore, file: tuple[str, IndexName]) -> str:
    key, name = file
    _copy(source, target, event_key(name.step, name.worker))  # none if only shapes were saved
    _copy(source, target, key)
    return key


def _copy(source: Store, target: AppendStore, key: str) -> None:
    """Copy an object, a large one in pieces; does nothing if it does not exist."""
    try:
        data = source.get(key, 0, _PIECE_BYTES)
    except ObjectNotFoundError:
        return
    if len(data) < _PIECE_BYTES:
        target.put(key, data)
        return
    size = 0
    while data:
        target.append(key, data, size)
        size += len(data)
        data = source.get(key, size, _PIECE_BYTES)


def _get(source: Store, key: str) -> bytes | None:
    try:
        return source.get(key)
    except ObjectNotFoundError:
        return None
