"""Where the functions' own metrics are: written by the functions, shown by infra."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_NAMESPACE", "namespace_of"]

DEFAULT_NAMESPACE: Final = "Stepwatch"
"""Default of a function without the setting, as in calls by hand."""


def namespace_of(stage: str) -> str:
    """Return the namespace of a deployment's metrics, so that two stages never mix."""
    return f"{DEFAULT_NAMESPACE}/{stage}"
