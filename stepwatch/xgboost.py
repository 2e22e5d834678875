"""The hook for XGBoost, `stepwatch.xgboost.Hook`; needs the extra `xgboost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.default_hooks import hook_names

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

if TYPE_CHECKING:
    from hook_layer.xgboost import (
        Collection,
        CollectionKeys,
        Hook,
        HookReport,
        ReductionConfig,
        SaveConfig,
        SaveConfigMode,
        del_hook,
        get_hook,
        modes,
        set_hook,
    )
else:
    __getattr__, __dir__ = hook_names(__name__, dict.fromkeys(__all__, "hook_layer.xgboost"))
