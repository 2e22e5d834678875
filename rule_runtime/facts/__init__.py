"""Facts about a step or run beyond its tensors: losses, layers, labels, validation."""

from __future__ import annotations

__all__: list[str] = []
