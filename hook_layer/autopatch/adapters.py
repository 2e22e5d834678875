"""Lets the adapter of a framework or logging library that was imported look for its use."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from functools import cache

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.process.uncaught_errors import end_with_a_line_when_stopped
from hook_layer.run.session_log import SessionLog

__all__ = ["watch_logger", "watch_trainings"]

logger = logging.getLogger("stepwatch")


def watch_trainings(imported: str, adapter: str) -> None:
    """Look by an adapter for trainings of an imported framework, if hooks are wanted."""
    notes = SessionLog.of_environment()
    if notes is not None:
        notes.imported(imported.partition(".")[0])
    source = _source()
    if source is None:
        return
    try:
        watch: Callable[[HookSource], None] = importlib.import_module(adapter).watch_unchanged
        watch(source)
    except Exception:
        logger.exception(
            "the adapter for %s failed to load; the script runs without a hook for it", imported
        )


def watch_logger(imported: str) -> None:
    """Watch the scalars that are given to an imported logging library, if hooks are wanted."""
    if _source() is None:
        return
    try:
        from hook_layer.logged_scalars.recording import watch_library  # noqa: PLC0415 - see `except`

        watch_library(imported)
    except Exception:
        logger.exception("scalars given to %s are not seen; the script runs without that", imported)


@cache
def _source() -> HookSource | None:
    try:
        source = HookSource.of_environment()
        if not source.is_there():
            return None
    except Exception as error:  # noqa: BLE001 - no script may be broken by it
        sys.stderr.write(f"stepwatch: nothing is watched: {error}\n")
        return None
    end_with_a_line_when_stopped()
    return source
