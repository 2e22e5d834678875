"""Rules, their outcomes and states, and the reconciler that feeds them."""

from __future__ import annotations

__all__: list[str] = []
