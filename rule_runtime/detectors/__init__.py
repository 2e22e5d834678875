"""Statistical decisions on plain numbers: no tensor names, no steps, bounded JSON state."""

from __future__ import annotations

__all__: list[str] = []
