"""Words of verdicts."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return a number of things: `1 step`, `2 steps`.

    Args:
        number: How many.
        noun: What one of them is called.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
