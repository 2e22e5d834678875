"""Adds explanations to uncaught errors of a script.

It replaces `sys.excepthook` only when such an error is about to be raised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Final

from hook_layer.errors import TrainingStoppedError
from hook_layer.run.session_log import is_watched

__all__ = ["STOPPED", "about_to_stop", "end_with_a_line_when_stopped", "name_the_alias"]

_ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], None]

STOPPED: Final = 3
"""Exit status if a rule requested the end of the training, and the error was not caught."""

_ALIAS: Final = (
    "to use the original client's names, start the script with `python -m "
    "rule_runtime.smdebug_alias train.py` (`stepwatch run -- python -m rule_runtime.smdebug_alias "
    "train.py`), or import stepwatch.torch instead of smdebug.pytorch"
)


@dataclass
class _State:
    is_watched: bool = False
    ours: _ExceptHook | None = None


_state = _State()


def end_with_a_line_when_stopped() -> None:
    """Let an uncaught stop end this process with a one-line message and the status `STOPPED`."""
    _state.is_watched = True


def about_to_stop() -> None:
    """Note that `TrainingStoppedError` is about to be raised."""
    if _state.is_watched and sys.excepthook is not _state.ours:
        _state.ours = _call_before_printing(_end_if_stopped)


@cache
def name_the_alias(originals: Collection[str]) -> None:
    """Explain the error for a missing package of the original client."""

    def add_advice(error: BaseException) -> None:
        if isinstance(error, ModuleNotFoundError) and error.name in originals:
            error.msg = f"{error.msg}: {_ALIAS}"

    _call_before_printing(add_advice)


def _end_if_stopped(error: BaseException) -> None:
    if isinstance(error, TrainingStoppedError):
        is_reported = error.rule is not None and is_watched()
        text = f"training was stopped by the rule {error.rule}" if is_reported else str(error)
        # A process group of torch buffers `sys.stderr`, and loses text that is written here.
        (sys.__stderr__ or sys.stderr).write(f"stepwatch: {text}\n")
        raise SystemExit(STOPPED)


def _call_before_printing(callback: Callable[[BaseException], None]) -> _ExceptHook:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        callback(error)
        before(kind, error, where)

    sys.excepthook = hook
    return hook
