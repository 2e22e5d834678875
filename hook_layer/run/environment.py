"""Describes what a run was, in `environment.json`: command, commit, packages, machine.

Values of environment variables are never stored, and secrets among the arguments are masked.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["environment_file", "environment_of_process", "masked"]

_SCHEMA_VERSION: Final = 1
_GIT_TIMEOUT_S: Final = 2.0
"""Seconds that git may take: the status of a huge repository may be slow, and a run waits."""
_MASK: Final = "***"
_MAX_ARGUMENT: Final = 4096
"""Characters of an argument that are stored; a program after `-c` may be longer."""
_WORD_OF_NAME: Final = re.compile("password|passwd|token|secret|key", re.IGNORECASE)
_NAME: Final = r"[^\s=:,;'\"{?&]{0,64}(?:password|passwd|token|secret|key)[^\s=:,;'\"]{0,64}"
_OPTION: Final = re.compile(rf"[-+]{_NAME}", re.IGNORECASE)
"""An argument whose following arguments are secrets: `--api-key VALUE`."""
_VALUE: Final = re.compile(
    rf"({_NAME}['\"\])]*\s*[=:]|(?<![^\s'\"])-{_NAME}\s).*", re.IGNORECASE | re.DOTALL
)
_USER_OF_URL: Final = re.compile(r"(?<=://)(?:[^/@\s]+|[^/@\s]*:[^@\s]+)(?=@)")
_DISTRIBUTION: Final = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+?)(-py[\d.]+)?\.(dist|egg)-info")
_GPUS: Final = Path("/proc/driver/nvidia/gpus")


def environment_of_process(world_size: int) -> bytes:
    """Return the content of `environment.json` for this process, a rank of a run.

    Args:
        world_size: Number of ranks.
    """
    return environment_file(
        sys.orig_argv, Packages=_packages(list(sys.modules)), WorldSize=world_size
    )


def environment_file(command: Sequence[str], **facts: Any) -> bytes:
    """Return the content of `environment.json`.

    Args:
        command: The command with its arguments.
        **facts: Further members.
    """
    content = {
        "SchemaVersion": _SCHEMA_VERSION,
        "Command": masked(command),
        "WorkingDirectory": _working_directory(),
        "Git": _git(),
        "Python": platform.python_version(),
        "Host": platform.node(),
        "Platform": platform.platform(),
        "Cpus": os.cpu_count(),
        "Gpus": _gpus(),
        **facts,
    }
    return json.dumps(content, indent=1).encode(errors="replace")


def masked(arguments: Iterable[str]) -> list[str]:
    """Return arguments without secrets.

    A secret is what follows a name that contains password, token, secret or key: the rest of the
    argument, or else the arguments up to the next option. So is the password in a URL.
    """
    shown: list[str] = []
    next_option = ""  # what an argument starts with that is no secret any more; empty: any
    for argument in arguments:
        if next_option and not argument.startswith(next_option):
            shown.append(_MASK)
            next_option = "-"
            continue
        # The first secret itself may start with one dash.
        next_option = "--" if _OPTION.fullmatch(argument) else ""
        text = argument[:_MAX_ARGUMENT]
        if _WORD_OF_NAME.search(text):
            text = _VALUE.sub(rf"\1{_MASK}", text)
        shown.append(_USER_OF_URL.sub(_MASK, text))
    return shown


def _working_directory() -> str | None:
    with suppress(OSError):  # it was removed
        return str(Path.cwd())
    return None


def _git() -> dict[str, Any] | None:
    """Return the commit of the working directory, and whether tracked files differ from it."""
    commit = _output_of_git("rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _output_of_git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    return {"Commit": commit.strip(), "IsDirty": None if changes is None else bool(changes)}


def _output_of_git(*arguments: str) -> str | None:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - constant arguments
            ["git", "--no-optional-locks", *arguments],  # noqa: S607 - as the user calls it
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
        return done.stdout if done.returncode == 0 else None
    return None


def _packages(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of imported packages by what a script imports.

    A package has the version of the distribution of its name, or else its `__version__`.
    """
    installed = _installed()
    found = {}
    for name in sorted({module.partition(".")[0] for module in modules}):
        if name.startswith("_") or name in sys.stdlib_module_names:
            continue
        attributes = getattr(sys.modules.get(name), "__dict__", {})
        version = installed.get(_normal(name)) or attributes.get("__version__")
        if isinstance(version, str):
            found[name] = version
    return found


def _installed() -> dict[str, str]:
    """Return the versions of installed distributions, from the names of their folders."""
    found: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):
            for entry in os.listdir(folder or "."):  # noqa: PTH208 - many names, no paths
                named = _DISTRIBUTION.fullmatch(entry)
                if named is not None:
                    found.setdefault(_normal(named["name"]), named["version"])
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _gpus() -> list[str]:
    """Return the models of the machine's GPUs, as NVIDIA's driver for Linux lists them."""
    found = []
    for file in sorted(_GPUS.glob("*/information")):
        with suppress(OSError, UnicodeDecodeError):
            found += re.findall(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE)
    return found
