"""Imported when Python starts; does its work at once.

By the start-up file of an environment, see `startup_file.py`, or since the command that started
this Python is watched.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final

__all__: list[str] = []

_OURS: Final = ("hook_layer", "rule_runtime")
_RUNS_SCRIPTS: Final = "rule_runtime.smdebug_alias"


def _module() -> str:
    """Return the name behind `-m`, empty without one; switches of Python may stand ahead of it."""
    if sys.argv[:1] != ["-m"]:
        return ""
    name = sys.orig_argv[-len(sys.argv)]
    return name.rpartition("m")[2] if name.startswith("-") else name


def _start() -> None:
    module = _module()
    if module.partition(".")[0] in _OURS and module != _RUNS_SCRIPTS:
        return  # it looks after itself
    try:
        from hook_layer.autopatch import HookSource, watch_frameworks  # noqa: PLC0415 - guarded

        source = HookSource.of_environment()
        if source.is_there():
            watch_frameworks(source)
            _tell_of_a_stop_in_a_line()
    except Exception as error:  # noqa: BLE001 - no script may be broken by its start
        sys.stderr.write(f"stepwatch: nothing is watched: {error}\n")


def _tell_of_a_stop_in_a_line() -> None:
    """Let a stop that nobody catches end the process as `python -m hook_layer` does."""
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        from hook_layer.autopatch.command import STOPPED  # noqa: PLC0415 - seldom needed
        from hook_layer.errors import TrainingStoppedError  # noqa: PLC0415 - as above

        if not isinstance(error, TrainingStoppedError):
            before(kind, error, where)
            return
        # A process group of torch keeps what is written to the other one, and forgets it here.
        (sys.__stderr__ or sys.stderr).write(f"stepwatch: {error}\n")
        raise SystemExit(STOPPED)

    sys.excepthook = tell


_start()
