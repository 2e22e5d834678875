"""The hooks for TensorFlow; needs the extra `tensorflow`.

These are `stepwatch.tensorflow.SessionHook` and `stepwatch.tensorflow.KerasHook`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

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
    __getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "hook_layer.tensorflow"))
