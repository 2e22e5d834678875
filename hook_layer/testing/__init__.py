"""Test suites for custom stores and framework adapters."""

from __future__ import annotations

__all__: list[str] = []
