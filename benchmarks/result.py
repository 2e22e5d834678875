"""What a benchmark found, and how it is shown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Measured", "Result", "print_table", "shown_number", "write_json"]


@dataclass(frozen=True)
class Measured:
    """A median of several measurements, with the least and the greatest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Measured:
        """Return the median and the spread of values."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])


@dataclass(frozen=True)
class Result:
    """One row of the table.

    Attributes:
        row: What is measured.
        unit: Unit of all numbers.
        ours: Ours.
        must: The number that ours must reach, None without a goal.
        aim: The number that ours should reach.
        limit: The best possible number.
        peers: The others, by name.
        better: Which numbers are the better ones.
    """

    row: str
    unit: str
    ours: Measured
    must: float | None = None
    aim: float | None = None
    limit: float | None = None
    peers: Mapping[str, Measured] = field(default_factory=dict)
    better: Literal["lower", "higher"] = "lower"

    @property
    def reaches(self) -> str:
        """Which of its goals the median of ours reaches: `aim`, `must` or `no`; empty for none."""
        for name, goal in (("aim", self.aim), ("must", self.must)):
            if goal is not None and self._is_as_good(self.ours.median, goal):
                return name
        return "" if self.must is None else "no"

    @property
    def ratio(self) -> float | None:
        """How many times as good as the best peer ours is; None where noise is more than either."""
        medians = [peer.median for peer in self.peers.values()]
        if not medians:
            return None
        is_lower_better = self.better == "lower"
        best = min(medians) if is_lower_better else max(medians)
        worse, less = (best, self.ours.median) if is_lower_better else (self.ours.median, best)
        return worse / less if worse > 0 and less > 0 else None

    @property
    def shown_peers(self) -> str:
        """Names and medians of the peers."""
        return ", ".join(f"{name} {shown_number(one.median)}" for name, one in self.peers.items())

    def to_json(self) -> dict[str, Any]:
        """Return the row as it is written to the file of results."""
        return {
            "row": self.row,
            "unit": self.unit,
            "ours": self.ours.median,
            "spread": [self.ours.low, self.ours.high],
            "peers": {name: peer.median for name, peer in self.peers.items()},
            "peer_spreads": {name: [peer.low, peer.high] for name, peer in self.peers.items()},
            "limit": self.limit,
            "must": self.must,
            "aim": self.aim,
            "better": self.better,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Result:
        """Return what `to_json` was made of."""
        spreads = content["peer_spreads"]
        peers = {n: Measured(median, *spreads[n]) for n, median in content["peers"].items()}
        ours = Measured(content["ours"], *content["spread"])
        plain = {name: content[name] for name in ("row", "unit", "must", "aim", "limit", "better")}
        return cls(ours=ours, peers=peers, **plain)

    def _is_as_good(self, one: float, other: float) -> bool:
        return one <= other if self.better == "lower" else one >= other


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write the rows to a file."""
    path.write_text(json.dumps([result.to_json() for result in results], indent=1) + "\n")


def print_table(results: Sequence[Result]) -> None:
    """Print the rows as one table."""
    head = ("row", "unit", "ours", "[min .. max]", "limit", "aim", "must", "reaches", "peers", "")
    rows = [head, *map(_cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _cells(result: Result) -> tuple[str, ...]:
    low, high = shown_number(result.ours.low), shown_number(result.ours.high)
    ours, must, aim, limit = map(
        shown_number, (result.ours.median, result.must, result.aim, result.limit)
    )
    sides = "best peer / ours" if result.better == "lower" else "ours / best peer"
    ratio = "" if result.ratio is None else f"{sides} {result.ratio:.3g}"
    spread = f"[{low} .. {high}]"
    names = (result.row, result.unit)
    return (*names, ours, spread, limit, aim, must, result.reaches, result.shown_peers, ratio)


def shown_number(value: float | None) -> str:
    """Return three digits of a number, nothing for None."""
    return "" if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004
