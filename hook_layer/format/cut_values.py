"""Describes tensors whose values are stored only in their first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["CutValue", "listed"]

_MAX_LISTED: Final = 8


@dataclass(frozen=True, slots=True)
class CutValue:
    """The stored part of one tensor's cut values.

    Attributes:
        rows: Number of first rows stored at the last cut.
        of_rows: Number of all rows.
        steps: Number of steps with a cut.
    """

    name: str
    rows: int
    of_rows: int
    steps: int = 1

    def __str__(self) -> str:
        """Return, for example, `logits: 14 of 512 rows at 3 steps`."""
        steps = f"{self.steps:,} step{'' if self.steps == 1 else 's'}"
        return f"{self.name}: {self.rows:,} of {self.of_rows:,} rows at {steps}"


def listed(cuts: Sequence[CutValue]) -> str:
    """Return one line about cut tensors, the one with the smallest stored share first."""
    ordered = sorted(cuts, key=lambda cut: (cut.rows / cut.of_rows, cut.name))
    more = len(ordered) - _MAX_LISTED
    return "; ".join(map(str, ordered[:_MAX_LISTED])) + (f"; and {more:,} more" if more > 0 else "")
