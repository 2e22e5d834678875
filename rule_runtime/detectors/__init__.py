"""Statistical decisions on plain numbers, without tensor names or steps; bounded JSON state."""

from __future__ import annotations

__all__: list[str] = []
