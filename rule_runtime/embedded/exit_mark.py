"""Writes into the end marker of a run how the watched script ended."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from typing import Final

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import StorageError, Store
from rule_runtime.trial.run_files import named_run, read_end_marker

__all__ = ["mark_exit", "shell_status"]

logger = logging.getLogger("stepwatch")

_OF_SIGNALS: Final = 128
_TERMINATED: Final = _OF_SIGNALS + signal.SIGTERM


def shell_status(status: int) -> int:
    """Return an exit status as a shell reports it: 128 plus the number of the signal."""
    return _OF_SIGNALS - status if status < 0 else status


def mark_exit(store: Store, run: str | None, status: int | None) -> None:
    """Write into the end marker of a run how its script ended.

    A hook cannot know it: it sees that the process ends, not with which status. A script that was
    killed leaves no end marker, and gets one here; but SIGTERM is no end: training may go on
    elsewhere. A marker that cannot be written is logged, and changes no verdict.

    Args:
        store: The trial's root.
        run: RunId of the run; None: nothing was stored by the script.
        status: Its exit status, below 0 for the signal that ended it; None where only its
            processes know.
    """
    try:
        if run is None or named_run(store) != run:
            return  # nothing to mark, or another run uses the folder by now
        found = read_end_marker(store)
        is_marked = found is not None and found.run_id == run
        if is_marked and status is None:
            return
        exit_status = None if status is None else shell_status(status)
        if not is_marked and exit_status == _TERMINATED:
            return
        marker = found if found is not None and is_marked else EndMarker(run)
        store.put(END_MARKER, replace(marker, exit_status=exit_status).encode())
    except StorageError as error:
        logger.warning("how the script ended is not written to %s: %s", store.uri, error)
