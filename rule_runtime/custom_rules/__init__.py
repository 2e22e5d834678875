"""Rules of users: files in the original client's style or in ours, loaded where that is allowed."""

from __future__ import annotations

__all__: list[str] = []
