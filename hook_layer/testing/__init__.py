"""Contract suites that ship with the package, for anyone who adds a store or an adapter."""

from __future__ import annotations

__all__: list[str] = []
