"""Writes the exit status of the watched script into the run's end marker."""

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
    """Return an exit status as in a shell: 128 plus the number of the signal."""
    return _OF_SIGNALS - status if status < 0 else status


def mark_exit(store: Store, run: str | None, status: int | None) -> None:
    """Write the exit status of a run's script into its end marker.

    A hook cannot know the status when its process ends. A killed script leaves no end marker, so
    this function writes it, except for SIGTERM: training may continue elsewhere. If the marker
    cannot be written, this is logged, and verdicts do not change.

    Args:
        store: The trial's root.
        run: RunId of the run; None if the script stored nothing.
        status: Its exit status, negative for a signal; None if unknown here.
    """
    try:
        if run is None or named_run(store) != run:
            return  # nothing to mark, or another run uses the folder now
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
