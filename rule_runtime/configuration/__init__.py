"""What is asked of hooks and evaluators, as the training API writes it."""

from __future__ import annotations

__all__: list[str] = []
