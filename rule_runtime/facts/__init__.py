"""What is known about a step or a run, beyond its tensors: losses, layers, labels, validation."""

from __future__ import annotations

__all__: list[str] = []
