"""Reads what a training run saved."""

from __future__ import annotations

__all__: list[str] = []
