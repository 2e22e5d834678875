"""Remembers in which line of the script each layer and optimizer was created."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import Optimizer

from hook_layer.process.script_lines import script_line
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.wrappers import is_a_key

__all__ = ["creation_line", "remember_line", "remember_lines_of_layers"]

_lines: Final[WeakKeyDictionary[nn.Module | Optimizer, str]] = WeakKeyDictionary()
_handles: Final[list[Any]] = []


def remember_lines_of_layers() -> None:
    """Remember the lines of all modules that the script creates from now on.

    A module registers its parameters while it is created, so that they have its line. One without
    parameters has the line at which it becomes a part of another one.
    """
    if not _handles:
        register_child = register_module_module_registration_hook
        _handles.append(own_hooks.register(register_child, _on_child))
        register_own = register_module_parameter_registration_hook
        _handles.append(own_hooks.register(register_own, _on_parameter))


def remember_line(created: nn.Module | Optimizer) -> None:
    """Remember the present line of the script for an object that was just created."""
    with suppress(TypeError):  # it cannot be hashed
        if created not in _lines:
            _lines[created] = script_line()


def creation_line(created: nn.Module | Optimizer) -> str:
    """Return file and line at which an object was created; "" if unknown."""
    with suppress(TypeError):
        return _lines.get(created, "")
    return ""


def _on_parameter(module: nn.Module, _: str, __: Any) -> None:
    if is_a_key(module):
        remember_line(module)


def _on_child(_: nn.Module, __: str, child: Any) -> None:
    if isinstance(child, nn.Module) and is_a_key(child):
        remember_line(child)
