"""Namespace of the functions' own metrics, which infra's dashboards show."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_NAMESPACE", "namespace_of"]

DEFAULT_NAMESPACE: Final = "Stepwatch"
"""Default for functions without the setting, as in manual calls."""


def namespace_of(stage: str) -> str:
    """Return the metrics namespace of a deployment; different stages do not mix."""
    return f"{DEFAULT_NAMESPACE}/{stage}"
