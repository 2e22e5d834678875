"""Loads custom rules: files in the original client's style or in that of Stepwatch."""

from __future__ import annotations

__all__: list[str] = []
