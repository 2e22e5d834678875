"""Pictures of what a training run saved, by matplotlib (extra `report`).

Every function takes a trial first and returns a figure: nothing is shown or kept by matplotlib
itself, so that figures can be made in a server, and again and again while a training runs. A
notebook shows the figure that a cell ends with. A script shows one by `figure.show()`, for
`pyplot.show()` does not know it, and writes one by `figure.savefig("loss.png")`.
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
