"""Numbers of several series at past steps, in a form that is small and cheap to copy.

Shape legend: P = kept points, S = series.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_NUMBERS", "MAX_POINTS", "PointHistory"]

MAX_POINTS: Final = 128
"""Points kept; of more, every second one between the first and the last is given up."""

MAX_NUMBERS: Final = 1 << 14
"""Numbers kept, of all points together; only two points are always kept."""

Series = tuple[str, str]
"""What names a series, e.g. worker and tensor."""


class PointHistory:
    """The latest points of a run, oldest first.

    As JSON the numbers are two strings, which a rule's memory copies at no cost.

    Args:
        data: What `to_json` returned; empty for no points.

    Attributes:
        steps: Two step numbers of each point [P, 2], int64: in the mode, and global.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._series: list[Series] = [(first, second) for first, second in data.get("series", ())]
        steps = np.frombuffer(base64.b64decode(data.get("steps", "")), "<i8")
        values = np.frombuffer(base64.b64decode(data.get("values", "")), "<f8")
        self.steps: npt.NDArray[np.int64] = steps.reshape(-1, 2)
        self._values: npt.NDArray[np.float64] = values.reshape(len(self.steps), len(self._series))

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON."""
        return {
            "series": [list(names) for names in self._series],
            "steps": base64.b64encode(self.steps.astype("<i8").tobytes()).decode(),
            "values": base64.b64encode(self._values.astype("<f8").tobytes()).decode(),
        }

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, point: int) -> dict[Series, float]:
        """Return the numbers of a point by series; those that it does not have are left out.

        Args:
            point: Its position.
        """
        row = self._values[point]
        return {self._series[at]: float(row[at]) for at in np.flatnonzero(~np.isnan(row))}

    def append(self, step: int, global_step: int, numbers: Mapping[Series, float]) -> None:
        """Add a point, giving up others if there are too many.

        Args:
            step: Its step in the mode.
            global_step: Its global step.
            numbers: Its numbers, not NaN.
        """
        known = set(self._series)
        self._series = [*self._series, *(names for names in numbers if names not in known)]
        wider = np.full((len(self) + 1, len(self._series)), np.nan)
        wider[:-1, : self._values.shape[1]] = self._values
        wider[-1] = [numbers.get(names, np.nan) for names in self._series]
        self._values = wider
        self.steps = np.vstack([self.steps, np.array([[step, global_step]], np.int64)])
        while len(self) > max(2, min(MAX_POINTS, MAX_NUMBERS // max(len(self._series), 1))):
            self._keep(np.unique([*range(0, len(self) - 1, 2), len(self) - 1]))

    def drop_before(self, point: int) -> None:
        """Give up all points before one.

        Args:
            point: Its position.
        """
        if point:
            self._keep(slice(point, None))

    def _keep(self, points: slice | npt.NDArray[Any]) -> None:
        self.steps = self.steps[points]
        self._values = self._values[points]
        is_missing = np.isnan(self._values)
        if is_missing.any() or not len(self):
            is_used = ~is_missing.all(axis=0)
            self._values = self._values[:, is_used]
            self._series = [self._series[at] for at in np.flatnonzero(is_used)]
