"""Names of commands and `prepare` for the ranks that write."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["RANKS", "Ranks", "include_workers"]

Ranks = Literal["auto", "all", "chief"]
RANKS: Final[dict[str, str]] = {"auto": "auto", "all": "all", "chief": "one"}
"""The hook's parameter `include_workers` for each name."""


def include_workers(ranks: str) -> str:
    """Return the hook's parameter `include_workers`.

    Raises:
        ValueError: The name is unknown.
    """
    if ranks not in RANKS:
        raise ValueError(f"ranks={ranks!r} must be one of {', '.join(RANKS)}")
    return RANKS[ranks]
