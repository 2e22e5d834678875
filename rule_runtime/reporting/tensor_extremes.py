"""Finds tensors of a run with non-finite elements, only zeros, or strong growth.

Shape legend: T = tensors seen so far, R = tensors of a file, C = statistics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS

__all__ = ["TensorExtremes"]

_GREW: Final = 100.0
"""Factor of growth from which a tensor is reported."""
_MAX_GROUPS: Final = 64
_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}
_COLUMNS: Final = (
    *("files", "nan_files", "inf_files", "zero_files", "first_bad", "max_abs", "max_abs_step"),
    *("first_step", "first_rms", "peak_rms", "peak_step"),
)
_INITIAL: Final = np.array([0, 0, 0, 0, np.inf, -1, -1, np.inf, np.nan, -1, -1], np.float64)
_OF: Final = {name: at for at, name in enumerate(_COLUMNS)}


class TensorExtremes:
    """Collects the statistics of files, in any order, and finds the most conspicuous tensors."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._table = np.empty((0, len(_COLUMNS)))
        self._codes: dict[tuple[str, ...], npt.NDArray[np.intp]] = {}

    def add(self, step: int, names: tuple[str, ...], rows: npt.NDArray[np.float64]) -> None:
        """Add the statistics of one file.

        Args:
            step: The global step.
            names: The tensors [R].
            rows: Their statistics [R, C].
        """
        codes = self._codes_of(names)
        table = self._table[codes]
        is_nan, is_inf = rows[:, _AT["nan"]] > 0, rows[:, _AT["inf"]] > 0
        size, l2 = rows[:, _AT["size"]], rows[:, _AT["l2"]]
        with np.errstate(all="ignore"):
            rms = l2 / np.sqrt(np.maximum(size, 1))
            largest = np.fmax(np.abs(rows[:, _AT["min"]]), np.abs(rows[:, _AT["max"]]))
        table[:, _OF["files"]] += 1
        table[:, _OF["nan_files"]] += is_nan
        table[:, _OF["inf_files"]] += is_inf
        table[:, _OF["zero_files"]] += (l2 == 0) & (size > 0) & ~is_nan & ~is_inf
        is_first_bad = (is_nan | is_inf) & (step < table[:, _OF["first_bad"]])
        table[is_first_bad, _OF["first_bad"]] = step
        _keep_largest(table, "max_abs", "max_abs_step", largest, step)
        _keep_largest(table, "peak_rms", "peak_step", rms, step)
        is_earlier = (step < table[:, _OF["first_step"]]) & (rms > 0) & np.isfinite(rms)
        table[is_earlier, _OF["first_step"]] = step
        table[is_earlier, _OF["first_rms"]] = rms[is_earlier]
        self._table[codes] = table

    def worst(self, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return the most conspicuous tensors, and the number of further ones."""
        columns = {name: self._table[:, at] for name, at in _OF.items()}
        with np.errstate(all="ignore"):
            growth = columns["peak_rms"] / columns["first_rms"]
            zero_share = columns["zero_files"] / columns["files"]
        grew = (growth >= _GREW) & (columns["peak_step"] > columns["first_step"])
        bad_files = columns["nan_files"] + columns["inf_files"]
        is_zero = zero_share >= 0.5  # noqa: PLR2004 - more often than not
        # Order: non-finite, all zero, growth; within each, by number of files or growth.
        rank = np.where(bad_files > 0, 3e12 + bad_files, 0.0)
        rank = np.where((rank == 0) & is_zero, 2e12 + columns["zero_files"], rank)
        rank = np.where((rank == 0) & grew, 1e12 + np.fmin(np.nan_to_num(growth), 1e11), rank)
        order = np.argsort(-rank, kind="stable")[: int((rank > 0).sum())]
        names = list(self.names)
        worst = [self._described(names[at], at, float(growth[at])) for at in order[:limit].tolist()]
        return worst, len(order) - len(worst)

    def _described(self, name: str, at: int, growth: float) -> dict[str, Any]:
        row = {column: self._table[at, to] for column, to in _OF.items()}
        has_bad = np.isfinite(row["first_bad"])
        return {
            "tensor": name,
            "files": int(row["files"]),
            "nan_files": int(row["nan_files"]),
            "inf_files": int(row["inf_files"]),
            "zero_files": int(row["zero_files"]),
            "first_not_finite_step": int(row["first_bad"]) if has_bad else None,
            "largest": float(row["max_abs"]) if row["max_abs"] >= 0 else None,
            "largest_step": int(row["max_abs_step"]) if row["max_abs"] >= 0 else None,
            "growth": growth if np.isfinite(growth) and growth >= _GREW else None,
            "grown_at_step": int(row["peak_step"]) if growth >= _GREW else None,
        }

    def _codes_of(self, names: tuple[str, ...]) -> npt.NDArray[np.intp]:
        codes = self._codes.get(names)
        if codes is None:
            codes = np.array([self.names.setdefault(n, len(self.names)) for n in names], np.intp)
            missing = len(self.names) - len(self._table)
            if missing:
                self._table = np.concatenate([self._table, np.tile(_INITIAL, (missing, 1))])
            if len(self._codes) >= _MAX_GROUPS:
                self._codes.clear()
            self._codes[names] = codes
        return codes


def _keep_largest(
    table: npt.NDArray[np.float64],
    column: str,
    step_column: str,
    numbers: npt.NDArray[np.float64],
    step: int,
) -> None:
    with np.errstate(all="ignore"):
        is_larger = np.isfinite(numbers) & (numbers > table[:, _OF[column]])
    table[is_larger, _OF[column]] = numbers[is_larger]
    table[is_larger, _OF[step_column]] = step
