"""Stores the first and latest numbers of several series in a fixed size.

Shape legend: F = first numbers that are stored, W = latest numbers that are stored.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SERIES", "NumberSeries", "Series", "SeriesMemory"]

MAX_SERIES: Final = 32
"""Maximum number of series; it bounds the memory."""

Series = tuple[str, str]
"""Key of a series: tensor and worker."""


@dataclass(frozen=True)
class NumberSeries:
    """One series.

    Attributes:
        first: Its first numbers [at most F].
        latest: Its latest numbers [at most W], oldest first.
        count: Total number of numbers.
        lowest: Lowest median of F consecutive numbers; NaN if there were fewer.
        rows: Rows of the batch of which each number is a mean; NaN if unknown.
    """

    first: npt.NDArray[np.float64]
    latest: npt.NDArray[np.float64]
    count: int
    lowest: float = np.nan
    rows: float = np.nan

    @property
    def start(self) -> float:
        """Magnitude at the start: of the first number, or of the median if larger."""
        sizes = np.abs(self.first)
        return float(max(sizes[0], np.median(sizes)))

    @property
    def whole(self) -> npt.NDArray[np.float64]:
        """The first numbers and the latest, each once [at most F + W]."""
        num_between = self.count - len(self.latest)
        return np.concatenate([self.first[: max(num_between, 0)], self.latest])

    def before(self, num: int) -> NumberSeries:
        """Return the series without its latest numbers."""
        count = max(self.count - num, 0)
        latest = self.latest[: max(len(self.latest) - num, 0)]
        return replace(self, first=self.first[:count], latest=latest, count=count)


class SeriesMemory:
    """First and latest numbers of at most 32 series, under a name in a rule's memory.

    The numbers are one string there: it is cheap to copy, and its length depends only on the number
    of series.
    """

    def __init__(
        self, memory: MutableMapping[str, Any], name: str, *, num_first: int, num_latest: int
    ) -> None:
        data, self._memory, self._name = memory.get(name, {}), memory, name
        self._num_first = num_first
        self._width = 2 + num_first + num_latest  # the count and the lowest level come first
        names = [(tensor, worker) for tensor, worker in data.get("series", ())]
        raw = np.frombuffer(base64.b64decode(data.get("numbers", "")), "<f8")
        rows = raw.reshape(len(names), self._width).copy()
        self._rows: dict[Series, npt.NDArray[np.float64]] = dict(zip(names, rows, strict=True))

    @property
    def names(self) -> list[Series]:
        """The stored series, sorted."""
        return sorted(self._rows)

    def add(self, numbers: Mapping[Series, float]) -> list[Series]:
        """Store a finite number of each given series; return the stored series, sorted."""
        stored = []
        for names in sorted(numbers):
            if names not in self._rows:
                if len(self._rows) >= MAX_SERIES:
                    continue
                self._rows[names] = np.array([0.0, *[np.nan] * (self._width - 1)])
            row, num_first = self._rows[names], self._num_first
            latest = row[2 + num_first :]
            latest[:] = [*latest[1:], numbers[names]]
            if row[0] < num_first:
                row[2 + int(row[0])] = numbers[names]
            row[0] += 1
            if row[0] >= num_first:
                row[1] = np.fmin(row[1], np.median(latest[-num_first:]))
            stored.append(names)
        written = b"".join(row.astype("<f8").tobytes() for row in self._rows.values())
        self._memory[self._name] = {
            "series": [list(names) for names in self._rows],
            "numbers": base64.b64encode(written).decode(),
        }
        return stored

    def of(self, series: Series) -> NumberSeries:
        """Return the stored numbers of a series."""
        count, lowest, *numbers = self._rows[series]
        first, latest = np.split(np.array(numbers), [self._num_first])
        return NumberSeries(first[~np.isnan(first)], latest[~np.isnan(latest)], int(count), lowest)
