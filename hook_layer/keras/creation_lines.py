"""Remembers in which line of the script each layer was created, and each model compiled."""

from __future__ import annotations

from typing import Any, Final

import keras

from hook_layer.capture.patched_functions import patch
from hook_layer.process.script_lines import ScriptLines

__all__ = ["COMPILED", "CREATED", "remember_lines"]

CREATED: Final = ScriptLines()
"""The lines at which layers were created."""
COMPILED: Final = ScriptLines()
"""The lines at which models got their loss and optimizer."""


def remember_lines() -> None:
    """Remember the lines of all layers and models that the script creates from now on."""
    patch(keras.layers.Layer, "__new__", after=_on_created)
    patch(keras.Model, "compile", after=_on_compiled)


def _on_created(layer: Any, *_: Any, **__: Any) -> None:
    CREATED.remember(layer)


def _on_compiled(_: Any, model: Any, *__: Any, **___: Any) -> None:
    COMPILED.remember(model, is_latest=True)
