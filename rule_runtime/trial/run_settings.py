"""Reads the settings of a run from `environment.json`, to compare runs by them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import load_object
from hook_layer.format.paths import ENVIRONMENT_FILE
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = [
    "LAUNCHERS",
    "SettingDifference",
    "arguments_of",
    "differing_settings",
    "read_environment",
    "script_position",
    "settings_of",
]

LAUNCHERS: Final = frozenset(
    {
        "accelerate", "accelerate.commands.launch", "deepspeed.launcher.runner", "hook_layer",
        "rule_runtime.smdebug_alias", "torch.distributed.launch", "torch.distributed.run",
    }
)  # fmt: skip
"""Modules that run the script in their arguments."""

_MAX_BYTES: Final = 4 << 20
"""Maximum size of `environment.json`, of a command with thousands of arguments."""
_OPTION: Final = re.compile(r"-+[^\d\W].*", re.DOTALL)
"""An option, unlike a negative number."""
_SCRIPT: Final = (".py", ".sh")
_FACTS: Final = {
    "Python": "Python",
    "WorldSize": "ranks",
    "Gpus": "GPUs",
    "Cpus": "CPUs",
    "Platform": "platform",
    "Host": "host",
    "WorkingDirectory": "working directory",
}
_RESERVED: Final = frozenset(("launcher", "script", "commit", *_FACTS.values()))
"""Settings that no argument `name=value` replaces."""


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between two runs.

    Attributes:
        setting: An argument such as `--lr`, `commit`, `package NAME`, or a fact such as `host`.
        first: Its value in the first run; None if it has none.
        second: Its value in the second run.
    """

    setting: str
    first: str | None
    second: str | None


def read_environment(store: Store) -> dict[str, Any]:
    """Return the content of `environment.json`; empty if there is none.

    Raises:
        FormatError: The file is no JSON object, or longer than 4 MiB.
        StorageError: The storage cannot be read.
    """
    try:
        data = store.get(ENVIRONMENT_FILE, 0, _MAX_BYTES + 1)
    except ObjectNotFoundError:
        return {}
    file = f"{store.uri}{ENVIRONMENT_FILE}"
    return load_object(data, file=file, error=FormatError, max_bytes=_MAX_BYTES)


def settings_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of an environment as texts: arguments, commit, packages, machine."""
    command, git, packages = (found.get(key) for key in ("Command", "Git", "Packages"))
    commit = git if isinstance(git, dict) else {}
    return {
        **arguments_of(list(map(_text, command)) if isinstance(command, list) else ()),
        **({"commit": _text(commit["Commit"])} if "Commit" in commit else {}),
        **({"uncommitted changes": _text(commit["IsDirty"])} if "IsDirty" in commit else {}),
        **(
            {f"package {name}": _text(version) for name, version in packages.items()}
            if isinstance(packages, dict)
            else {}
        ),
        **{name: _text(found[key]) for key, name in _FACTS.items() if key in found},
    }


def differing_settings(
    first: Mapping[str, str], second: Mapping[str, str]
) -> list[SettingDifference]:
    """Return the settings that differ, in the order of the first run."""
    return [
        SettingDifference(name, first.get(name), second.get(name))
        for name in dict.fromkeys((*first, *second))
        if first.get(name) != second.get(name)
    ]


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a command by name: launcher, script, and those of the script.

    The launcher is what precedes the script, such as `python -u`. Values of an option are separated
    by spaces; an option without any is "given". `name=value` is an option, too, called
    `argument name` if a setting has that name. Other arguments have their position after the
    script.
    """
    at = script_position(command)
    named = {"launcher": list(command[:at]), "script": list(command[at : at + 1])}
    found = {name: values for name, values in named.items() if any(values)}
    option = ""
    for position, argument in enumerate(command[at + 1 :], 1):
        name, has_value, value = argument.partition("=")
        if _OPTION.fullmatch(argument):
            option = "" if has_value else name
            found.setdefault(name, []).extend([value] if has_value else [])
        elif option:
            found[option].append(argument)
        elif has_value:
            name = f"argument {name}" if name in _RESERVED else name
            found.setdefault(name, []).append(value)
        else:
            found[f"argument {position}"] = [argument]
    return {name: " ".join(values) or "given" for name, values in found.items()}


def script_position(command: Sequence[str]) -> int:
    """Return the position of the first script or module after `-m`; 0 if there is none."""
    for at, text in enumerate(command):
        is_module = at > 0 and command[at - 1] == "-m" and text not in LAUNCHERS
        if is_module or text.endswith(_SCRIPT):
            return at
    return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
