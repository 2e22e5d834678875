"""Imported when a Python starts whose script must be watched; does its work at once.

It imports as little as it can, for the script's own modules come first from then on.
"""

from __future__ import annotations

import sys

from hook_layer.autopatch import watch_frameworks

__all__: list[str] = []

_OURS = ("hook_layer", "rule_runtime", "stepwatch")
_ORIGINALS = frozenset({"smdebug", "smdebug_rulesconfig"})


def _module() -> str:
    """Return the name behind `-m`, empty without one; switches of Python may stand before it."""
    if sys.argv[:1] != ["-m"]:
        return ""
    name = sys.orig_argv[-len(sys.argv)]
    return name.rpartition("m")[2] if name.startswith("-") else name


class _OriginalsFinder:
    """Notices that the original client is imported and is not there."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in _ORIGINALS:
            from hook_layer.process.uncaught_errors import name_the_alias  # noqa: PLC0415 - seldom needed

            name_the_alias(_ORIGINALS)


def _start() -> None:
    if _module().partition(".")[0] not in _OURS:  # these look after themselves
        watch_frameworks()
        sys.meta_path.append(_OriginalsFinder())


_start()
