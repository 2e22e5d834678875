"""Parses parameters of hooks and collections: when to save, what to store, which tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import checked_pattern
from hook_layer.configuration.json_values import as_integer, as_texts
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys

__all__ = [
    "REDUCTION_KEYS",
    "SAVE_KEYS",
    "SaveParameters",
    "make_save_config",
    "read_include_regex",
    "read_reduction_config",
    "read_save_parameters",
]

SaveParameters: TypeAlias = Mapping[ModeKeys, Mapping[str, Any]]
"""The given arguments of `SaveConfigMode`, by mode."""


def _steps(name: str, value: object) -> list[int]:
    if isinstance(value, str):
        value = as_texts(name, value)
    steps = value if isinstance(value, list) else [value]
    return [as_integer(name, step, minimum=0) for step in steps]


_READ: Final[Mapping[str, Callable[[str, object], object]]] = {
    "save_interval": partial(as_integer, minimum=1),
    "start_step": partial(as_integer, minimum=0),
    "end_step": partial(as_integer, minimum=0),
    "save_steps": _steps,
}
_PREFIXES: Final = {mode: f"{mode.name.lower()}." for mode in ModeKeys}

SAVE_KEYS: Final = tuple(prefix + key for prefix in ("", *_PREFIXES.values()) for key in _READ)
"""Keys for when to save, for all modes and for single modes."""
REDUCTION_KEYS: Final = ("reductions", "save_raw_tensor", "save_shape", "raw_max_elements")
"""Keys for what to store."""


def read_save_parameters(
    path: str, given: Mapping[str, Any], base: SaveParameters
) -> SaveParameters | None:
    """Return when to save; None if no parameter configures it.

    Args:
        path: Path of the parameters, for messages.
        given: The parameters.
        base: Defaults.

    Raises:
        HookConfigurationError: A number is invalid.
    """
    if not any(key in given for key in SAVE_KEYS):
        return None

    def behind(prefix: str) -> dict[str, Any]:
        keys = [key for key in _READ if prefix + key in given]
        return {key: _READ[key](f"{path}.{prefix}{key}", given[prefix + key]) for key in keys}

    plain = behind("")
    save = {
        mode: {**base.get(mode, {}), **plain, **behind(prefix)}
        for mode, prefix in _PREFIXES.items()
    }
    for mode, arguments in save.items():
        _check_together(f"{path}, mode {mode.name}", arguments)
    return save


def _check_together(where: str, arguments: Mapping[str, Any]) -> None:
    try:
        SaveConfigMode(**arguments)
    except HookConfigurationError as error:
        raise HookConfigurationError(f"{where}: {error}") from error


def make_save_config(save: SaveParameters, default_interval: int) -> SaveConfig:
    """Return the save configuration; `default_interval` applies if no interval is given."""
    modes = {mode: {"save_interval": default_interval, **save.get(mode, {})} for mode in ModeKeys}
    return SaveConfig({mode: SaveConfigMode(**arguments) for mode, arguments in modes.items()})


def read_reduction_config(
    path: str, given: Mapping[str, Any], base: ReductionConfig | None
) -> ReductionConfig | None:
    """Return what is stored of a tensor; None if no parameter configures it.

    With `reductions`, the value itself is stored only if `save_raw_tensor` is set. Without
    `reductions`, the other keys modify `base`.

    Args:
        path: Path of the parameters, for messages.
        given: The parameters.
        base: Default; None: the value itself is stored.

    Raises:
        HookConfigurationError: A reduction is unknown, a flag not boolean, or a limit not a number.
    """
    said = {key: given[key] for key in REDUCTION_KEYS if key in given}
    if not said:
        return None
    if "reductions" not in said:
        said = {**(base or ReductionConfig(save_raw_tensor=True)).to_json_dict(), **said}
    try:
        return ReductionConfig.from_dict(said)
    except HookConfigurationError as error:
        raise HookConfigurationError(f"{path}.{error}") from error


def read_include_regex(path: str, given: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions of `include_regex`: a list, or text separated by commas.

    Raises:
        HookConfigurationError: One is not a regular expression.
    """
    name = f"{path}.include_regex"
    return [checked_pattern(p, name) for p in as_texts(name, given.get("include_regex", []))]
