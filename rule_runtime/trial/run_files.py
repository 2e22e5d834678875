"""Reads which run a folder holds, and whether the run has ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, EndMarker, parse_end_marker
from hook_layer.format.errors import FormatError
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import ObjectNotFoundError, Store, read_small
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.step_index import StepFile, iter_step_files, list_index_files

__all__ = ["current_run", "last_sequences", "named_run", "newest_run", "read_end_marker"]

_logger: Final = logging.getLogger(__name__)


def current_run(store: Store) -> str | None:
    """Return the RunId of the run in a folder; None for files of the original client.

    It is the RunId in `job.json`, otherwise the newest RunId of the index files.
    """
    run = named_run(store)
    if run is not None:
        return run
    return newest_run(iter_step_files(store, [key for key, _ in list_index_files(store)]))


def named_run(store: Store) -> str | None:
    """Return the RunId in `job.json`; None if there is none."""
    job = usable_job_file(store)
    return None if job is None else job.run_id


def newest_run(files: Iterable[StepFile]) -> str | None:
    """Return the newest RunId among index files; None for files of the original client.

    Args:
        files: The files in step order.
    """
    newest: str | None = None
    for file in files:
        run = None if file.index is None else file.index.run
        if file.index is not None and run is None and newest is None:
            return None  # a client that writes RunIds writes job.json before its first index file
        newest = newest if run is None else max(newest or "", run)
    return newest


def last_sequences(store: Store, run: str | None) -> Mapping[str, int] | None:
    """Return the sequence number of each worker's last index file; None without an end marker."""
    marker = read_end_marker(store)
    return marker.sequences if marker is not None and marker.run_id == run else None


def read_end_marker(store: Store) -> EndMarker | None:
    """Return the end marker; None if there is none yet.

    A marker with invalid content also ends a run, because the original's reader ignores the
    content.
    """
    try:
        return read_small(store, END_MARKER, MAX_END_MARKER_BYTES, parse_end_marker)
    except ObjectNotFoundError:
        return None
    except FormatError as error:
        _logger.warning("ignored what the end marker says: %s", error)
        return EndMarker()
