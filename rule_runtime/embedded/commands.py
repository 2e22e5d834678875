"""Checks a command, prepares the Python processes that it starts, and names its run."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hook_layer.autopatch.command import STARTUP
from hook_layer.autopatch.hook_source import OUT_DIR_VARIABLE
from hook_layer.child_processes import prepared_environment, unprepared_switch
from hook_layer.configuration.configuration_file import OWN_VARIABLE
from hook_layer.run.session_log import NOTES_VARIABLE
from rule_runtime.trial.run_settings import LAUNCHERS
from rule_runtime.trial.sessions import folder_of_sessions

__all__ = ["checked_command", "hooked_environment", "script_name"]

logger = logging.getLogger("stepwatch")

_PYTHON: Final = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")
_WITH_VALUE: Final = re.compile("-(?P<others>[^cmWX]*)(?P<letter>[cmWX])(?P<value>.*)")
"""Combined switches of Python; the last one has a value, attached or as next argument."""
_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"
_SCRIPTS: Final = (".py", ".sh")


def checked_command(command: Sequence[str]) -> list[str]:
    """Return a runnable command: unchanged, or with this Python for a script alone.

    `hooked_environment` prepares the Python processes that it starts. It logs switches of Python
    that prevent this.

    Raises:
        ValueError: The script or command does not exist, or its Python lacks this package.
        OSError: The command cannot be run.
    """
    program, *arguments = command
    if program.endswith(".py"):
        program, arguments = sys.executable, [program, *arguments]
    elif shutil.which(program) is None:
        how = "`stepwatch evaluate` evaluates one, `stepwatch run` needs a command"
        sessions = folder_of_sessions(program, how) if Path(program).is_dir() else ""
        raise ValueError(sessions or f"{program}: there is no such command")
    elif not _is_python(program):
        return list(command)
    switches, script = _divided(arguments)
    if script and script[0] != "-m" and not Path(script[0]).exists():
        raise ValueError(f"{script[0]}: the script does not exist")
    switch = unprepared_switch(switches)
    if switch is not None:
        logger.warning(
            "the script is not watched: with %s Python does not read PYTHONPATH, by which Stepwatch"
            " gets into it; leave %s out",
            switch,
            switch,
        )
    elif script:
        _check_python(program)
    return [program, *arguments]


def hooked_environment(config: Path, notes: Path) -> dict[str, str]:
    """Return the variables that give a hook to the Python processes of a command.

    A hook that a script creates from a file uses this configuration.
    """
    named = {OWN_VARIABLE: str(config), OUT_DIR_VARIABLE: "", NOTES_VARIABLE: str(notes)}
    return named | prepared_environment(STARTUP)


def script_name(command: Sequence[str]) -> str:
    """Return the name of a command's script or module, without folder and package."""
    program, *arguments = command
    if not _is_python(program):
        return _named_script([program, *arguments]) or Path(program).stem
    script = _divided(arguments)[1]
    if script[:1] == ["-m"]:
        named = _named_script(script[2:]) if script[1] in LAUNCHERS else ""
        return named or _module_name(script[1])
    return Path(script[0]).stem if script else "script"


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(Path(program).name) is not None


def _named_script(arguments: Iterable[str]) -> str:
    """Return the name of the first script, or module after `-m`, among arguments; "" for none."""
    before = ""
    for argument in arguments:
        if argument.endswith(_SCRIPTS) and not argument.startswith("-"):
            return Path(argument).stem
        if before in {"-m", "--module"} and not argument.startswith("-"):
            return _module_name(argument)
        before = argument
    return ""


def _module_name(module: str) -> str:
    return module.removesuffix(".__main__").rpartition(".")[2]


def _divided(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the switches of Python, and the script or `-m MODULE` with its arguments.

    The latter is empty if there is none.
    """
    rest = list(arguments)
    switches: list[str] = []
    while rest and rest[0].startswith("-"):
        switch = rest.pop(0)
        if switch == "-":  # the script comes from standard input
            return switches, []
        found = None if switch.startswith("--") else _WITH_VALUE.search(switch)
        takes_next = switch == _LONG_WITH_VALUE or (found is not None and not found["value"])
        following = [rest.pop(0)] if takes_next and rest else []
        if found is None or found["letter"] in "WX":
            switches += [switch, *following]
            continue
        if found["others"]:
            switches.append(f"-{found['others']}")
        module = [found["value"]] if found["value"] else following
        return switches, ["-m", *module, *rest] if found["letter"] == "m" and module else []
    return switches, rest


def _check_python(program: str) -> None:
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('hook_layer') is None)"
    if subprocess.run([program, "-c", look], check=False).returncode != 0:  # noqa: S603 - see above
        raise ValueError(
            f"{program!r} has no stepwatch installed: install it in that Python, or "
            f"give the one that has it, {sys.executable}"
        )
