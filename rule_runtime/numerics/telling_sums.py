"""Columns that make up a number: parts whose sum it is, or the number itself with some noise.

What tells a number has to stand alone: where the other columns tell it, too, as those of a window
of a smooth series do, it can be known.

Shape legend: B = rows, C = columns.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.column_blocks import are_usable

__all__ = ["Sum", "telling_sum"]

_Numbers = npt.NDArray[np.float64]
_FEWEST_COLUMNS: Final = 5
_MOST_COLUMNS: Final = 128
_FEWEST_ROWS: Final = 24
_MOST_ROWS: Final = 1024
_MOST_PARTS: Final = 3
_EXACT: Final = 1e-8
_COUNTS: Final = 1e-3
_LEFT_OPEN: Final = 0.02
_NEARLY: Final = 0.005
_OPEN_BESIDE: Final = 0.2
_TURNS: Final = 0.125
_TINY: Final = 1e-300


class Sum(NamedTuple):
    """What tells a number in a batch.

    Attributes:
        columns: The columns; none if nothing does.
        is_exact: Whether they are parts of it, and not the number with noise.
    """

    columns: list[int]
    is_exact: bool


def telling_sum(columns: npt.NDArray[Any], targets: _Numbers) -> Sum | None:
    """Return which columns make up the targets; None of too few rows or columns, or too many.

    None, too, where the targets turn from rising to falling, or back, in less than one row of 8.

    Up to three columns do of which the targets are a sum, each times a number, but for rounding
    (1e-4 of the standard deviation), if a linear fit of the others leaves 2 % of the variance open;
    or one in which the ranks of the targets are known but for 0.5 % of their variance, if the
    others leave 20 % of it open.

    Args:
        columns: Real numbers [B, C].
        targets: Finite numbers [B], more than half as many different ones as rows.
    """
    rows = slice(0, _MOST_ROWS)
    values, numbers = columns[rows], targets[rows]
    usable = _usable(values)
    ways = np.sign(np.diff(numbers))
    if (ways[1:] * ways[:-1] < 0).sum() < _TURNS * len(numbers):
        return None  # any column that counts rows goes with such targets
    is_of_numbers = 2 * len(np.unique(numbers)) > len(numbers) >= _FEWEST_ROWS
    if not is_of_numbers or not len(usable) or len(numbers) < 2 * len(usable) + 2:
        return None
    table, target = _standard(values[:, usable].astype(np.float64)), _standard(numbers[:, None])
    shares, left_by_all = _fit(table, target)
    if left_by_all < _EXACT:
        parts = np.flatnonzero(np.abs(shares) > _COUNTS)
        others = np.delete(table, parts, axis=1)
        is_told = len(parts) <= _MOST_PARTS and _fit(others, target)[1] > _LEFT_OPEN
        return Sum(usable[parts].tolist() if is_told else [], is_exact=is_told)
    ranks, of_target = _standard(_ranks(table)), _standard(_ranks(target))
    near = np.square(ranks.T @ of_target[:, 0] / len(ranks))
    best = int(near.argmax())
    others = np.delete(ranks, best, axis=1)
    is_told = bool(near[best] > 1 - _NEARLY) and _fit(others, of_target)[1] > _OPEN_BESIDE
    return Sum([int(usable[best])] if is_told else [], is_exact=False)


def _usable(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return which columns are real numbers that vary; none if they are too few or too many."""
    none = np.empty(0, np.intp)
    if values.dtype.kind != "f" or not _FEWEST_COLUMNS <= values.shape[1] <= _MOST_COLUMNS:
        return none
    usable = np.flatnonzero(are_usable(values).all(0) & (values != values[:1]).any(0))
    return usable if len(usable) >= _FEWEST_COLUMNS else none


def _standard(values: _Numbers) -> _Numbers:
    """Return columns of mean 0 and variance 1 [B, C]."""
    centred = values - values.mean(0)
    result: _Numbers = np.asarray(centred / np.maximum(centred.std(0), _TINY), np.float64)
    return result


def _ranks(values: _Numbers) -> _Numbers:
    """Return the rank of each number in its column [B, C], that of equal ones their mean."""
    ranks = np.empty_like(values)
    for at, column in enumerate(values.T):
        _, where, counts = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, at] = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return ranks


def _fit(table: _Numbers, target: _Numbers) -> tuple[_Numbers, float]:
    """Return what a linear fit multiplies columns by, and which share of the variance it leaves.

    The share is what it would be of new rows.
    """
    if not table.shape[1]:
        return np.empty(0), 1.0
    found, *_ = np.linalg.lstsq(table, target, rcond=1e-6)
    left = float(np.square(target - table @ found).mean())
    freedom = max(len(table) - 1 - table.shape[1], 1)
    return np.asarray(found[:, 0], np.float64), min(left * (len(table) - 1) / freedom, 1.0)
