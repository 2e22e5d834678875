"""One diagnosis of a run: from the findings of rules to their cause, and what to change."""

from __future__ import annotations

__all__: list[str] = []
