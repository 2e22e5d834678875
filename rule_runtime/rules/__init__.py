"""The built-in rules, one a file; the file is named as its rule in snake_case."""

from __future__ import annotations

__all__: list[str] = []
