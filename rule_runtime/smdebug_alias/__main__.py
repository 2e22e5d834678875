"""`python -m rule_runtime.smdebug_alias [--replace] SCRIPT.py|-m MODULE [ARGUMENT...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from hook_layer.child_processes import become_python, prepared_environment, unprepared_switch
from rule_runtime.smdebug_alias import AliasError, install
from rule_runtime.smdebug_alias.startup import REPLACING, VARIABLE

__all__ = ["main"]

_STARTUP: Final = "rule_runtime.smdebug_alias.startup"

_USAGE: Final = (
    "usage: python -m rule_runtime.smdebug_alias [--replace] SCRIPT.py|-m MODULE [ARGUMENT...]\n"
    "Runs a script with smdebug and smdebug_rulesconfig meaning those of Stepwatch."
)


def main(arguments: Sequence[str]) -> None:
    """Run a script or module with the original's names, like `python` does.

    Its child processes have them, too.
    """
    rest = list(arguments)
    replace = rest[:1] == ["--replace"]
    if replace:
        del rest[0]
    is_module = rest[:1] == ["-m"]
    if is_module:
        del rest[0]
    if not rest or rest[0].startswith("-"):
        wants_help = rest[:1] in (["-h"], ["--help"])
        sys.stderr.write(f"{_USAGE}\n")
        raise SystemExit(0 if wants_help else 2)
    try:
        install(replace=replace)
    except AliasError as error:
        raise SystemExit(f"smdebug_alias: {error}") from None
    switch = unprepared_switch()
    if switch is not None:
        raise SystemExit(
            f"smdebug_alias: with {switch} Python does not read PYTHONPATH, by which the names get "
            f"into it: leave {switch} out"
        )
    environment = {VARIABLE: REPLACING if replace else "1", **prepared_environment(_STARTUP)}
    become_python(["-m", *rest] if is_module else rest, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
