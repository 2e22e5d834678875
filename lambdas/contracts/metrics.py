"""Where the functions' own metrics are: written by the functions, shown by infra."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_NAMESPACE", "namespace_of"]

DEFAULT_NAMESPACE: Final = "Stepwatch"
"""Of a function that is not told any, as in calls by hand."""


def namespace_of(stage: str) -> str:
    """Return the namespace of a deployment's metrics, so that two stages never mix."""
    return f"{DEFAULT_NAMESPACE}/{stage}"
