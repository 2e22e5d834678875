"""Reports why nothing is captured of a command, during the run and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from hook_layer.autopatch import UNWATCHED
from hook_layer.autopatch.uncaptured import without_hook
from hook_layer.run.session_log import SessionLog

__all__ = ["NothingCaptured", "why_nothing"]

_PATIENCE_S: Final = 60.0
"""Seconds after the first import of a framework."""
_NOTHING_TRAINED: Final = "{} was imported, and nothing was trained with it that a hook saw"
_OF_BOOSTING: Final = (
    "; of XGBoost, only `xgboost.train` is watched, also through its scikit-learn interface: not "
    "`Booster.update`, and `xgboost.cv` only with a hook among its callbacks (stepwatch.xgboost)"
)
_NOTHING_IMPORTED: Final = (
    "no Python that it started imported a framework that `stepwatch doctor` lists; those in a "
    "container, on another machine or with the switches -I, -E and -S are not seen"
)


class NothingCaptured:
    """Reports once why nothing is captured of a running command."""

    def __init__(
        self,
        notes: SessionLog,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._notes = notes
        self._say = say
        self._clock = clock
        self._is_over = False

    def look(self) -> None:
        """Report it if a process noted a reason, or imported a framework a minute ago."""
        if self._is_over:
            return
        if self._notes.runs:
            self._is_over = True
        elif self._notes.reason is not None:
            self._log_reason("nothing is captured yet")
        elif self._is_late():
            self._log_reason(
                f"nothing is captured yet, {_PATIENCE_S:.0f} s after the first import of a "
                "framework; Stepwatch keeps looking"
            )

    def _log_reason(self, what: str) -> None:
        self._is_over = True
        self._say(f"{what}: {why_nothing(self._notes)}")

    def _is_late(self) -> bool:
        first = self._notes.imported_at
        return first is not None and self._clock() - first >= _PATIENCE_S


def why_nothing(notes: SessionLog, status: int = 0) -> str:
    """Return why nothing was captured of a command.

    Args:
        notes: What its processes noted.
        status: Its exit status; 0 if it still runs.
    """
    if notes.lacking is not None:
        return f"{notes.lacking} has no stepwatch installed: install it in that Python"
    if notes.runs:
        return "a run began; see the output of the script and the log of its hook"
    if notes.reason is not None:
        return notes.reason
    if status:
        return f"the script failed, with status {status}, before a hook saw a training"
    imported = notes.frameworks
    watched = [name for name in imported if name not in UNWATCHED]
    untrained = _NOTHING_TRAINED.format(" and ".join(watched)) if watched else ""
    if "xgboost" in watched:
        untrained += _OF_BOOSTING
    return "; ".join(filter(None, [without_hook(imported), untrained])) or _NOTHING_IMPORTED
