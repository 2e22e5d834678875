"""Patience: how often in a row a test was positive."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

__all__ = ["streak"]


def streak(state: MutableMapping[str, Any], *, is_bad: bool, name: str = "streak") -> int:
    """Count how often in a row a test was positive, this time included.

    Args:
        state: A number is kept in it, by name; changed in place.
        is_bad: Whether the test is positive now.
        name: Name of the number in the state.
    """
    state[name] = int(state.get(name, 0)) + 1 if is_bad else 0
    return int(state[name])
