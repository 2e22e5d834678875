"""The hook for Keras 3, `stepwatch.keras.Hook`; needs the extra `keras`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.default_hooks import hook_names

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TrainingStoppedError",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

if TYPE_CHECKING:
    from hook_layer.keras import (
        Collection,
        CollectionKeys,
        Hook,
        HookReport,
        KerasHook,
        ReductionConfig,
        SaveConfig,
        SaveConfigMode,
        TrainingStoppedError,
        del_hook,
        get_hook,
        modes,
        set_hook,
    )
else:
    __getattr__, __dir__ = hook_names(__name__, dict.fromkeys(__all__, "hook_layer.keras"))
