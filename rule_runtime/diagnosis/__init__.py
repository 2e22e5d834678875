"""Looking at an installation and a deployment for what keeps them from working."""

from __future__ import annotations

__all__: list[str] = []
