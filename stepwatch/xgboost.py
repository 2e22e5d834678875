"""The hook for XGBoost, `stepwatch.xgboost.Hook`; needs the extra `xgboost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

__all__ = ["Collection", "Hook", "HookReport", "del_hook", "get_hook", "set_hook"]

if TYPE_CHECKING:
    from hook_layer.xgboost import Collection, Hook, HookReport, del_hook, get_hook, set_hook
else:
    __getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "hook_layer.xgboost"))
