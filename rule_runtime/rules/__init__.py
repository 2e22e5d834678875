"""The built-in rules, one per file; a file has its rule's name in snake_case."""

from __future__ import annotations

__all__: list[str] = []
