"""A folder for `PYTHONPATH`, whose `sitecustomize` prepares every Python that a command starts.

Each Python then runs its script as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

__all__ = [
    "STARTUP_VARIABLE",
    "become_python",
    "prepared_environment",
    "unprepared_switch",
]

STARTUP_VARIABLE: Final = "STEPWATCH_STARTUP"
"""Variable with the modules that a prepared Python imports at startup."""

_FOLDER: Final = str(Path(__file__).parent)


def prepared_environment(module: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables with which each Python imports a module at startup.

    Args:
        module: The module, in addition to those in `environ`.
        environ: The environment.
    """
    paths, modules = environ.get("PYTHONPATH", ""), environ.get(STARTUP_VARIABLE, "")
    others = [path for path in paths.split(os.pathsep) if path != _FOLDER] if paths else []
    names = dict.fromkeys([*modules.split(","), module])
    return {
        "PYTHONPATH": os.pathsep.join([_FOLDER, *others]),
        STARTUP_VARIABLE: ",".join(filter(None, names)),
    }


def unprepared_switch(switches: Sequence[str] | None = None) -> str | None:
    """Return the switch with which Python ignores `PYTHONPATH`'s `sitecustomize`; None without any.

    Args:
        switches: Switches of Python; None for those of this process.
    """
    if switches is None:
        switches = [
            switch
            for switch, is_on in (
                ("-I", sys.flags.isolated),
                ("-E", sys.flags.ignore_environment),
                ("-S", sys.flags.no_site),
            )
            if is_on
        ]
    short = (switch for switch in switches if switch.startswith("-") and switch[1:2] != "-")
    letters = (letter for switch in short for letter in _letters_of(switch) if letter in "IES")
    found = next(letters, None)
    return None if found is None else f"-{found}"


def become_python(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the same Python with the same switches and other arguments.

    Args:
        arguments: Script or `-m MODULE`, and its arguments.
        environment: Additional variables.
    """
    command = [sys.orig_argv[0], *_own_switches(), *arguments]
    variables = {**os.environ, **environment}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # on Windows, exec starts another process that nobody waits for
        done = subprocess.run(command, executable=sys.executable, env=variables, check=False)  # noqa: S603
        raise SystemExit(done.returncode)
    os.execve(sys.executable, command, variables)  # noqa: S606 - the user's own


def _own_switches() -> list[str]:
    """Return the switches of this Python, which runs a script, `-m` or `-c`."""
    switches = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    last = switches.pop()
    if last == sys.argv[0]:  # the script
        return switches
    if not last.startswith("-"):  # the name is a separate argument
        last = switches.pop()
    others = last[: next(at for at, letter in enumerate(last) if letter in "cm")]
    return switches if others == "-" else [*switches, others]


def _letters_of(switch: str) -> str:
    """Return the letters of combined switches, without the value of the last."""
    for at, letter in enumerate(switch):
        if letter in "cmWX":
            return switch[1:at]
    return switch[1:]
