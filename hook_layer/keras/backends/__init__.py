"""What differs between the backends of Keras; only the active one is imported.

Each has a class `StepRunner` (see `hook_layer.keras.step_runner`) and a function `rank_and_size`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import keras

from hook_layer.errors import HookConfigurationError

__all__ = ["active_backend"]

_BACKENDS = ("jax", "tensorflow", "torch")


def active_backend() -> ModuleType:
    """Return the module of Keras's backend.

    Raises:
        HookConfigurationError: There is no hook for this backend.
    """
    name = keras.backend.backend()
    if name not in _BACKENDS:
        raise HookConfigurationError(
            f"the Keras backend {name!r} has no hook, because it cannot train; use one of "
            f"{', '.join(_BACKENDS)}"
        )
    return importlib.import_module(f"hook_layer.keras.backends.{name}")
