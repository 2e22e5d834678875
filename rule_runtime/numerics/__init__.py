"""The mathematics that rules share, each with an oracle test."""

from __future__ import annotations

__all__: list[str] = []
