"""Plots of saved training data with matplotlib (extra `report`).

Every function takes a trial as first argument and returns a figure. pyplot does not keep the
figures, so a server can create many, also during training. A notebook shows the figure at the end
of a cell. In a script, show it with `figure.show()`, not `pyplot.show()`, and save it with
`figure.savefig("loss.png")`.
"""

from __future__ import annotations

from rule_runtime.optional_extra import require_report_extra

require_report_extra("drawing", "matplotlib")

from rule_runtime.plotting.images import plot_activations, plot_kernels  # noqa: E402
from rule_runtime.plotting.lines import plot_collection, plot_tensors  # noqa: E402
from rule_runtime.plotting.metrics import plot_metrics  # noqa: E402
from rule_runtime.plotting.xgboost import (  # noqa: E402
    IMPORTANCE_TYPES,
    plot_average_shap,
    plot_feature_importance,
    plot_full_shap,
)

__all__ = [
    "IMPORTANCE_TYPES",
    "plot_activations",
    "plot_average_shap",
    "plot_collection",
    "plot_feature_importance",
    "plot_full_shap",
    "plot_kernels",
    "plot_metrics",
    "plot_tensors",
]
