"""Frameworks without a hook, and reasons why nothing is captured of a process."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Sequence
from typing import Final

from hook_layer.autopatch import UNWATCHED
from hook_layer.current_hook import CurrentHook
from hook_layer.frameworks import FRAMEWORKS
from hook_layer.run.session_log import SessionLog

__all__ = ["log_reason", "note_unwatched", "without_hook"]

logger = logging.getLogger("stepwatch")

_imported: Final[list[str]] = []
"""Frameworks without a hook that this process imported, where nobody watches its command."""


def without_hook(imported: list[str]) -> str:
    """Return that frameworks have no hook; empty if all of them have."""
    names = [UNWATCHED[name] for name in imported if name in UNWATCHED]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    watched = _listed([framework.name for framework in FRAMEWORKS])
    return f"{_listed(names)} {verb} no hook: Stepwatch captures {watched}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def log_reason(reason: str) -> None:
    """Say why nothing is captured of this process: to who watches the command, and to the log."""
    if CurrentHook.of_any_framework() is not None:
        return
    notes = SessionLog.of_environment()
    if notes is None:
        logger.warning("nothing is captured yet: %s", reason)
    else:  # who watches prints it once
        notes.note_reason(reason)


def note_unwatched(name: str) -> None:
    """Note that a framework without a hook was imported."""
    notes = SessionLog.of_environment()
    if notes is not None:
        notes.imported(name)
    elif not _imported:
        atexit.register(_say_at_end)
    _imported.append(name)


def _say_at_end() -> None:
    if CurrentHook.of_any_framework() is None:
        error = getattr(sys, "last_value", None)  # what ended the script, already printed
        failed = error and f"the script failed first: {type(error).__name__}"
        logger.warning("nothing was captured: %s", failed or without_hook(_imported))
