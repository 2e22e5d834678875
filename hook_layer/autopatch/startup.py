"""Imported by the start-up file of an environment, see `startup_file.py`; does its work at once."""

from __future__ import annotations

import sys
from typing import Final

__all__: list[str] = []

_OURS: Final = ("hook_layer", "rule_runtime")


def _module() -> str:
    """Return the name behind `-m`, empty without one; switches of Python may stand ahead of it."""
    if sys.argv[:1] != ["-m"]:
        return ""
    name = sys.orig_argv[-len(sys.argv)]
    return name.rpartition("m")[2] if name.startswith("-") else name


def _start() -> None:
    if _module().partition(".")[0] in _OURS:
        return  # it looks after itself
    try:
        from hook_layer.autopatch import HookSource, watch_frameworks  # noqa: PLC0415 - guarded

        source = HookSource.of_environment()
        if source.is_there():
            watch_frameworks(source)
    except Exception as error:  # noqa: BLE001 - no script may be broken by its start
        sys.stderr.write(f"stepwatch: nothing is watched: {error}\n")


_start()
