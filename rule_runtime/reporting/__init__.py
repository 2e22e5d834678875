"""Reports of a training as files for people (extra `report`)."""

from __future__ import annotations

__all__: list[str] = []
