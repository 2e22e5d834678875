"""`python -m rule_runtime.smdebug_alias [--replace] SCRIPT.py|-m MODULE [ARGUMENT...]`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rule_runtime.smdebug_alias import AliasError, install
from rule_runtime.smdebug_alias.child_processes import aliased_child_processes

__all__ = ["main"]

_USAGE: Final = (
    "usage: python -m rule_runtime.smdebug_alias [--replace] SCRIPT.py|-m MODULE [ARGUMENT...]\n"
    "Runs a script with smdebug and smdebug_rulesconfig meaning those of Stepwatch."
)


def main(arguments: Sequence[str]) -> None:
    """Run a script or a module as `python` does, under the original's names.

    Processes that it starts have them too.

    Args:
        arguments: The command line without the program.
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
    sys.argv = rest
    with aliased_child_processes(replace=replace):
        if is_module:
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(rest[0]).resolve().parent)
            runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
