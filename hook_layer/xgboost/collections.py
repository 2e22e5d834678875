"""The collections that exist for XGBoost."""

from __future__ import annotations

from typing import Final

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults

__all__ = ["DEFAULTS"]

# As the original has them, for its reader takes them out of the collections file. Where they leave
# something out by mistake (`validation_0-rmse`, shares of a feature whose name ends in "s") the
# hook adds it by name.
DEFAULTS: Final = FrameworkDefaults(
    built_in={
        CollectionKeys.DEFAULT: (),
        CollectionKeys.ALL: (),
        CollectionKeys.HYPERPARAMETERS: ("^hyperparameters/.*$",),
        CollectionKeys.METRICS: ("^[a-zA-z]+-[a-zA-z0-9]+$",),
        CollectionKeys.LOSSES: ("^[a-zA-z]+-.+(?<!(auc|map))$",),
        CollectionKeys.PREDICTIONS: ("^predictions$",),
        CollectionKeys.LABELS: ("^labels$",),
        CollectionKeys.FEATURE_IMPORTANCE: ("^feature_importance/.*",),
        CollectionKeys.AVERAGE_SHAP: ("^average_shap/.*[^/bias]$",),
        CollectionKeys.FULL_SHAP: ("^full_shap/.*[^/bias]$",),
        CollectionKeys.TREES: ("^trees/.*",),
    },
    always_saved=(CollectionKeys.METRICS,),
    save_interval=10,
)
"""The collections of XGBoost's hook."""
