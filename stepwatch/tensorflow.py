"""The hooks for TensorFlow; needs the extra `tensorflow`.

These are `stepwatch.tensorflow.SessionHook` and `stepwatch.tensorflow.KerasHook`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.default_hooks import hook_names

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "HookReport",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

if TYPE_CHECKING:
    from hook_layer.tensorflow import (
        Collection,
        CollectionKeys,
        EstimatorHook,
        HookReport,
        KerasHook,
        ReductionConfig,
        SaveConfig,
        SaveConfigMode,
        SessionHook,
        del_hook,
        get_hook,
        modes,
        set_hook,
    )
else:
    __getattr__, __dir__ = hook_names(
        __name__,
        {**dict.fromkeys(__all__, "hook_layer.tensorflow"), "KerasHook": "stepwatch.keras"},
    )
