"""How far weights moved between two steps, by their statistics.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["DRIFT_COLUMNS", "MAX_TENSORS", "WeightDrift"]

DRIFT_COLUMNS: Final = ("min", "max", "mean", "std", "l2", "size")
"""The statistics that are needed of each weight."""

MAX_TENSORS: Final = 64
"""Weights that are followed; of more, as many that are evenly spread by name."""

_Row = tuple[str, str]


class WeightDrift:
    """The weights at one step, to compare those of the next one with.

    Args:
        data: What `to_json` returned; empty to begin.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.step: int | None = data.get("step")
        raw = np.frombuffer(base64.b64decode(data.get("values", "")), "<f8")
        rows = raw.reshape(-1, len(DRIFT_COLUMNS))
        names = [(tensor, worker) for tensor, worker in data.get("rows", ())]
        self._values: dict[_Row, npt.NDArray[np.float64]] = dict(zip(names, rows, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return the weights as JSON, at most 64 of them."""
        values = b"".join(row.astype("<f8").tobytes() for row in self._values.values())
        return {
            "step": self.step,
            "rows": [list(row) for row in self._values],
            "values": base64.b64encode(values).decode(),
        }

    def advance(
        self, step: int, rows: list[_Row], columns: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[_Row]]:
        """Go on to a later step; return how far each weight moved in a step, and which they are.

        The first vector is a bound: the norm of the change of a weight, divided by its norm, is at
        least this, for |l2(w') - l2(w)|, |mean' - mean| sqrt(n), |std' - std| sqrt(n), |max' - max|
        and |min' - min| are each at most l2(w' - w). The second is an estimate of how far a single
        element moves, in units of the root mean square: the largest change of minimum, maximum,
        mean and standard deviation. Both are divided by the number of steps, and finite.

        Args:
            step: The step.
            rows: Tensor and worker of each weight [R].
            columns: Their `DRIFT_COLUMNS` [R, 6]; rows with NaN are left out.
        """
        usable = np.isfinite(columns).all(axis=1) & (columns[:, 4] > 0) & (columns[:, 5] > 1)
        now = {row: columns[at] for at, row in enumerate(rows) if usable[at]}
        names = sorted(now)
        if len(names) > MAX_TENSORS:
            names = [names[at] for at in np.linspace(0, len(names) - 1, MAX_TENSORS).astype(int)]
        before, steps = self._values, step - (step if self.step is None else self.step)
        self.step, self._values = step, {name: now[name] for name in names}
        both = [name for name in names if name in before]
        if steps <= 0 or not both:
            return np.empty(0), np.empty(0), []
        old = np.stack([before[name] for name in both])
        root = np.sqrt(old[:, 5])
        with np.errstate(over="ignore"):
            change = np.abs(np.stack([now[name] for name in both]) - old)
            scaled = change[:, :5] * np.stack([root**0, root**0, root, root, root**0], 1)
            bound = np.max(scaled, axis=1) / old[:, 4] / steps
            moved = np.max(change[:, :4], axis=1) / old[:, 4] * root / steps
        return np.nan_to_num(bound), np.nan_to_num(moved), both
