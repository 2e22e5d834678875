"""Mathematics for rules, each with an oracle test."""

from __future__ import annotations

__all__: list[str] = []
