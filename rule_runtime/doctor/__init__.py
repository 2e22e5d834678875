"""Checks an installation and a deployment for problems."""

from __future__ import annotations

__all__: list[str] = []
