"""The first and the latest numbers of several series, in a form of fixed size.

Shape legend: S = series, F = first numbers kept, W = latest numbers kept.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SERIES", "NumberSeries", "Series", "SeriesMemory"]

MAX_SERIES: Final = 32
"""Series that are kept; further ones, by name, are not."""

Series = tuple[str, str]
"""What names a series: tensor and worker."""


@dataclass(frozen=True)
class NumberSeries:
    """One series.

    Attributes:
        first: Its first numbers [at most F].
        latest: Its latest numbers [at most W], oldest first.
        count: How many numbers there were in all.
    """

    first: npt.NDArray[np.float64]
    latest: npt.NDArray[np.float64]
    count: int

    @property
    def start(self) -> float:
        """How large the numbers were at the beginning: the first one, or the median if larger."""
        sizes = np.abs(self.first)
        return float(max(sizes[0], np.median(sizes)))

    @property
    def whole(self) -> npt.NDArray[np.float64]:
        """The first numbers and the latest, each once [at most F + W]."""
        num_between = self.count - len(self.latest)
        return np.concatenate([self.first[: max(num_between, 0)], self.latest])


class SeriesMemory:
    """First and latest numbers of several series, and how often each was found bad in a row.

    As JSON the numbers are one string, which a rule's memory copies at no cost, and whose length
    depends on the number of series only.

    Args:
        data: What `to_json` returned; empty to begin.
        num_first: How many first numbers are kept.
        num_latest: How many latest numbers are kept.
    """

    def __init__(self, data: Mapping[str, Any], *, num_first: int, num_latest: int) -> None:
        self._num_first = num_first
        names = [(tensor, worker) for tensor, worker in data.get("series", ())]
        raw = np.frombuffer(base64.b64decode(data.get("numbers", "")), "<f8")
        rows = raw.reshape(len(names), num_first + num_latest).copy()
        self._width = num_first + num_latest
        self._numbers: dict[Series, npt.NDArray[np.float64]] = dict(zip(names, rows, strict=True))
        self._counts: dict[Series, int] = dict(zip(names, data.get("counts", ()), strict=True))
        self._streaks: dict[Series, int] = dict(zip(names, data.get("streaks", ()), strict=True))

    @property
    def names(self) -> list[Series]:
        """The series that are kept, sorted."""
        return sorted(self._numbers)

    def to_json(self) -> dict[str, Any]:
        """Return the memory as JSON."""
        rows = [row.astype("<f8").tobytes() for row in self._numbers.values()]
        return {
            "series": [list(names) for names in self._numbers],
            "numbers": base64.b64encode(b"".join(rows)).decode(),
            "counts": list(self._counts.values()),
            "streaks": list(self._streaks.values()),
        }

    def add(self, numbers: Mapping[Series, float]) -> list[Series]:
        """Add a number to each of some series; return those that are kept, sorted.

        Args:
            numbers: A finite number of each series.
        """
        kept = []
        for names in sorted(numbers):
            if names not in self._numbers:
                if len(self._numbers) >= MAX_SERIES:
                    continue
                self._numbers[names] = np.full(self._width, np.nan)
                self._counts[names] = self._streaks[names] = 0
            row, count = self._numbers[names], self._counts[names]
            if count < self._num_first:
                row[count] = numbers[names]
            row[self._num_first : -1] = row[self._num_first + 1 :]
            row[-1] = numbers[names]
            self._counts[names] = count + 1
            kept.append(names)
        return kept

    def of(self, series: Series) -> NumberSeries:
        """Return what is kept of a series.

        Args:
            series: One that was added to.
        """
        row = self._numbers[series]
        first, latest = row[: self._num_first], row[self._num_first :]
        return NumberSeries(
            first[~np.isnan(first)], latest[~np.isnan(latest)], self._counts[series]
        )

    def streak(self, series: Series, *, is_bad: bool) -> int:
        """Count how often in a row a series was found bad, this time included.

        Args:
            series: One that was added to.
            is_bad: Whether it is bad now.
        """
        self._streaks[series] = self._streaks[series] + 1 if is_bad else 0
        return self._streaks[series]
