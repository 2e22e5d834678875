"""Means of series over bins of steps, so that it matters little how often they were saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rule_runtime.numerics.series_memory import MAX_SERIES, Series

__all__ = ["BinnedMeans"]


class BinnedMeans:
    """The bin that is open, of at most 32 series.

    Args:
        data: What `to_json` returned; empty to begin.
        num_steps: Steps of a bin.
    """

    def __init__(self, data: Mapping[str, Any], num_steps: int) -> None:
        self._num_steps = num_steps
        self._bin: int | None = data.get("bin")
        self._sums: dict[Series, list[float]] = {
            (first, second): [total, count] for first, second, total, count in data.get("sums", ())
        }

    def to_json(self) -> dict[str, Any]:
        """Return the open bin as JSON."""
        sums = [[*names, *pair] for names, pair in self._sums.items()]
        return {"bin": self._bin, "sums": sums}

    def add(self, step: int, numbers: Mapping[Series, float]) -> dict[Series, float]:
        """Add the numbers of a step; return the means of the bin that ended before it, if one did.

        Args:
            step: The step.
            numbers: A finite number of each series.
        """
        number = step // self._num_steps
        means: dict[Series, float] = {}
        if number != self._bin:
            means = {names: total / count for names, (total, count) in self._sums.items()}
            self._sums, self._bin = {}, number
        for names in sorted(numbers):
            if names in self._sums or len(self._sums) < MAX_SERIES:
                pair = self._sums.setdefault(names, [0.0, 0.0])
                pair[0] += numbers[names]
                pair[1] += 1
        return means
