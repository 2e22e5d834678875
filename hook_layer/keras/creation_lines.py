"""Remembers in which line of the script each layer was created, and each model compiled."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import keras

from hook_layer.capture.patched_functions import patch
from hook_layer.process.script_lines import script_line

__all__ = ["compile_line", "creation_line", "remember_lines"]

_created: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()
_compiled: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()


def remember_lines() -> None:
    """Remember the lines of all layers and models that the script creates from now on."""
    patch(keras.layers.Layer, "__new__", after=_on_created)
    patch(keras.Model, "compile", after=_on_compiled)


def creation_line(layer: Any) -> str:
    """Return file and line at which a layer was created; "" if unknown."""
    with suppress(TypeError):
        return _created.get(layer, "")
    return ""


def compile_line(model: Any) -> str:
    """Return file and line at which a model got its loss and optimizer; "" if unknown."""
    with suppress(TypeError):
        return _compiled.get(model, "")
    return ""


def _on_created(layer: Any, *_: Any, **__: Any) -> None:
    with suppress(TypeError):  # it cannot be hashed
        _created[layer] = script_line()


def _on_compiled(_: Any, model: Any, *__: Any, **___: Any) -> None:
    with suppress(TypeError):
        _compiled[model] = script_line()
