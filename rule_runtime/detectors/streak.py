"""Patience: how often in a row a test was positive."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

__all__ = ["streak"]


def streak(state: MutableMapping[str, Any], *, is_bad: bool, name: str = "streak") -> int:
    """Count in a state, by name, how often in a row a test was positive, this time included."""
    state[name] = int(state.get(name, 0)) + 1 if is_bad else 0
    return int(state[name])
