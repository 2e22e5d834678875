"""Counts consecutive positive results of a test."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

__all__ = ["streak"]


def streak(state: MutableMapping[str, Any], *, is_bad: bool, name: str = "streak") -> int:
    """Return the number of consecutive positive results, including this one; stored in `state`."""
    state[name] = int(state.get(name, 0)) + 1 if is_bad else 0
    return int(state[name])
