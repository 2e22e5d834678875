"""The local target: runs the synthesized template in moto, with a poller that calls its functions.

Callers only need `LocalTarget`; the other modules are its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.local.target import LocalTarget

__all__ = ["LocalTarget"]


def __getattr__(name: str) -> Any:
    # The poller process runs without moto, whose import takes a second.
    if name == "LocalTarget":
        from infra.local.target import LocalTarget  # noqa: PLC0415

        return LocalTarget
    raise AttributeError(f"module {__name__} has no attribute {name}")
