"""Selects the ranks of a distributed run that write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["WHO_WRITES", "writing_ranks"]

WHO_WRITES: Final = ("one", "all", "auto")
"""`one`: rank 0. `all`: every rank. `auto`: values of rank 0, statistics of several ranks."""
_MOST_WRITERS: Final = 16
_ONE_IN: Final = 16


def writing_ranks(who: str, size: int, groups: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the ranks that write, sorted.

    Args:
        who: One of `WHO_WRITES`.
        size: Number of ranks.
        groups: One rank of each known pipeline stage and shard group. With more than 16 ranks,
            `auto` selects these, rank 0, the last rank, and one rank in 16.
    """
    if who == "one":
        return (0,)
    if who == "all" or size <= _MOST_WRITERS:
        return tuple(range(size))
    chosen = {size - 1, *range(0, size, _ONE_IN), *groups}
    return tuple(sorted(rank for rank in chosen if 0 <= rank < size))
