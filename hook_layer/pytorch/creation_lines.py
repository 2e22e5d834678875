"""Remembers in which line of the script each layer and optimizer was created."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from hook_layer.process.script_lines import ScriptLines
from hook_layer.pytorch.calls import register_hook
from hook_layer.pytorch.wrappers import is_a_key

__all__ = ["CREATED", "remember_layers"]

CREATED: Final = ScriptLines()
"""The lines at which layers and optimizers were created."""


@cache
def remember_layers() -> None:
    """Remember the lines of all modules that the script creates from now on.

    A module registers its parameters while it is created, so that they have its line. One without
    parameters has the line at which it becomes a part of another one.
    """
    register_hook(register_module_module_registration_hook, _on_child)
    register_hook(register_module_parameter_registration_hook, _on_parameter)


def _on_parameter(module: nn.Module, _: str, __: Any) -> None:
    if is_a_key(module):
        CREATED.remember(module)


def _on_child(_: nn.Module, __: str, child: Any) -> None:
    if isinstance(child, nn.Module) and is_a_key(child):
        CREATED.remember(child)
