"""Names of the functions' own metrics, which infra's alarms and dashboards show."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_NAMESPACE", "ESTIMATED_COST", "EVERY_FUNCTION", "namespace_of"]

DEFAULT_NAMESPACE: Final = "Stepwatch"
"""Default for functions without the setting, as in manual calls."""

ESTIMATED_COST: Final = "EstimatedCost"
"""Dollars of a call at list prices."""
EVERY_FUNCTION: Final = "every_function"
"""Its dimension `service`: one metric for all functions, because each metric costs."""


def namespace_of(stage: str) -> str:
    """Return the metrics namespace of a deployment; different stages do not mix."""
    return f"{DEFAULT_NAMESPACE}/{stage}"
