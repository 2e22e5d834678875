"""Columns of a batch that tell its targets exactly: the targets themselves, in some form."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "are_masked",
    "are_next",
    "are_seen",
    "as_columns",
    "as_targets",
    "columns_of_all",
    "telling_columns",
]

_MOST_ELEMENTS: Final = 1 << 22
_FEWEST_ROWS: Final = 8
_CLOSE: Final = 1e-6
_MATRIX: Final = 2
_PAIR: Final = 2
_ROUNDED: Final = 0.02
_MOST_TARGETS: Final = 32
_MORE_COLUMNS: Final = 2
_AGREEING: Final = 0.9
_MOST_CLASSES: Final = 32
_FEWEST_AGREEING: Final = 50
_FEWEST_OTHERS: Final = 10
_FEWEST_PLACES: Final = 32
_FEWEST_OF_CLASS: Final = 4
_FEWEST_OF_TWO: Final = 8


def as_targets(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return finite numbers or classes for each row [B, T]; None if targets are something else.

    Args:
        values: Targets [B], [B, ...], or one-hot [B, K].
    """
    if values.dtype.kind not in "biuf" or not values.ndim or len(values) < _FEWEST_ROWS:
        return None
    if not 0 < values.size <= _MOST_ELEMENTS:
        return None
    flat: npt.NDArray[np.float64] = values.reshape(len(values), -1).astype(np.float64)
    is_one_hot = values.ndim == _MATRIX and flat.shape[1] > 1
    is_one_hot &= bool(((flat == 0) | (flat == 1)).all() and (flat.sum(1) == 1).all())
    if is_one_hot:
        return np.asarray(flat.argmax(1)[:, None], np.float64)
    return flat if np.isfinite(flat).all() else None


def as_columns(values: npt.NDArray[Any], num_rows: int) -> npt.NDArray[np.float64] | None:
    """Return an input as columns [B, C], None if it has only one, or other rows than the targets.

    None as well if it has more than 4 million elements, for the memory that they would take.

    Args:
        values: The input [B, ...].
        num_rows: B.
    """
    if values.dtype.kind not in "biuf" or values.ndim < _MATRIX or len(values) != num_rows:
        return None
    if not num_rows < values.size <= _MOST_ELEMENTS:
        return None
    return values.reshape(num_rows, -1).astype(np.float64)


def columns_of_all(
    columns: npt.NDArray[np.float64], targets: npt.NDArray[np.float64], *, may_err: bool = False
) -> tuple[list[list[int]], int] | None:
    """Return which columns tell each target, and how many rows show it; None if none could.

    Of several targets, those that do not vary need no column, but half of them must vary; of more
    than 32, as images, so many are looked at that lie evenly. If inputs have less than twice the
    columns of the targets they may be what is to be rebuilt, as of an autoencoder.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B, T], finite.
        may_err: Whether a single target may be told but for a few rows.
    """
    num_targets = targets.shape[1]
    if num_targets == 1:
        told, shown = telling_columns(columns, targets[:, 0], may_err=may_err)
        return [np.flatnonzero(told).tolist()], shown
    chosen = np.unique(np.linspace(0, num_targets - 1, _MOST_TARGETS).astype(np.intp))
    is_large = columns.size * len(chosen) > _MOST_ELEMENTS
    if columns.shape[1] < _MORE_COLUMNS * num_targets or is_large:
        return None
    found, rows = [], []
    for target in targets.T[chosen]:
        told, shown = telling_columns(columns, target)
        found.append(np.flatnonzero(told).tolist() if shown else list(range(columns.shape[1])))
        rows += [shown] if shown else []
    return found, min(rows) if 2 * len(rows) >= len(chosen) else 0


def telling_columns(
    columns: npt.NDArray[np.float64], targets: npt.NDArray[np.float64], *, may_err: bool = False
) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which columns [C] tell the targets, and how many rows show that it is no chance.

    With more than half as many different targets as rows, those columns do that rise, or fall,
    wherever the targets rise (but for 2 % of the rows, for rounding); all rows show it. With fewer,
    those that are the same wherever the targets are, if together they differ wherever the targets
    do; rows show it that have the target of another. Failing these, columns that part a class of 4
    rows or more (8 where there are two) from all others, by a gap that is wider than either side or
    by a number that no other row has, if each such class is parted by one, and half of all classes
    are such. Failing these, too, if they may err, columns of as many values as there are classes by
    which, of 50 rows or more, 90 % of the rows are right that are not of the most frequent class
    (Goodman and Kruskal's lambda). Nothing does if all targets are equal.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B], finite.
        may_err: Whether classes may be told but for a few rows.
    """
    is_finite = np.isfinite(columns).all(0)
    order = np.argsort(targets, kind="stable")
    ordered = np.where(is_finite, columns, 0.0)[order]
    steps = np.diff(targets[order]) > _CLOSE * float(np.ptp(targets))
    changes, close = np.diff(ordered, axis=0), _CLOSE * np.abs(ordered).max(0)
    rises, falls = changes > close, changes < -close
    num_distinct = int(steps.sum()) + 1
    nothing: npt.NDArray[np.bool_] = np.zeros(columns.shape[1], np.bool_)
    if num_distinct == 1 or len(targets) < _FEWEST_ROWS:
        return nothing, 0
    if 2 * num_distinct > len(targets):
        told = is_finite & (_follow(rises, falls, steps) | _follow(falls, rises, steps))
        return told, len(targets)
    told = is_finite & ~(rises | falls)[~steps].any(0) & (rises | falls).any(0)
    # Of rows with equal targets the first stands for all.
    first = ordered[np.concatenate([[True], steps])][:, told]
    is_enough = bool(told.any()) and len(np.unique(first, axis=0)) == num_distinct
    if is_enough:
        return told, len(targets) - num_distinct
    classes = np.concatenate([[0], np.cumsum(steps)])
    told = is_finite & _parting(ordered, classes)
    if may_err and not told.any():
        told = is_finite & _agreeing(ordered, close, classes)
    return told, len(targets) - num_distinct


def _parting(
    columns: npt.NDArray[np.float64], classes: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Tell which columns [C] part a class from the others, if each of the classes [B] is parted.

    Args:
        columns: The columns [B, C], in the order of the classes.
        classes: The class of each row, 0 to K - 1 and then the next.
    """
    told = np.zeros(columns.shape[1], np.bool_)
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    judged = np.flatnonzero((counts >= _FEWEST_OF_CLASS) & (len(classes) - counts >= counts))
    is_pair = len(counts) == _PAIR and counts.min() >= _FEWEST_OF_TWO
    if len(counts) > _MOST_CLASSES or not (is_pair or 2 * len(judged) >= len(counts) > _PAIR):
        return told
    low, high = np.minimum.reduceat(columns, starts), np.maximum.reduceat(columns, starts)
    for at in judged:
        rest_low = np.delete(low, at, axis=0).min(0)
        rest_high = np.delete(high, at, axis=0).max(0)
        gap = np.maximum(low[at] - rest_high, rest_low - high[at])
        parts = gap > np.maximum(high[at] - low[at], rest_high - rest_low)
        is_mark = (low[at] == high[at]) & ((columns == low[at]).sum(0) == counts[at])
        parts |= is_mark
        if not parts.any():
            return np.zeros(columns.shape[1], np.bool_)
        told |= parts
    return told


def _agreeing(
    columns: npt.NDArray[np.float64], close: npt.NDArray[np.float64], classes: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Tell which columns [C] are the classes [B], 0 to K - 1, but for a few rows."""
    told = np.zeros(columns.shape[1], np.bool_)
    counts = np.bincount(classes)
    others = len(classes) - int(counts.max())
    is_too_few = len(classes) < _FEWEST_AGREEING or others < _FEWEST_OTHERS
    if is_too_few or len(counts) > _MOST_CLASSES:
        return told
    order = np.argsort(columns, axis=0)
    rises = np.diff(np.take_along_axis(columns, order, 0), axis=0) > close
    for at in np.flatnonzero(rises.sum(0) == len(counts) - 1):
        values = np.concatenate([[0], np.cumsum(rises[:, at])])
        pairs = np.bincount(values * len(counts) + classes[order[:, at]], minlength=counts.size**2)
        # Each value stands for another class: else one class is told by none.
        best = pairs.reshape(counts.size, -1).argmax(1)
        right = int(pairs.reshape(counts.size, -1).max(1).sum())
        is_right = 1 - (len(classes) - right) / others >= _AGREEING
        told[at] = is_right and len(np.unique(best)) == len(best)
    return told


def _follow(
    with_it: npt.NDArray[np.bool_], against: npt.NDArray[np.bool_], steps: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which columns [C] never go against the steps [B - 1], and hardly ever stand still."""
    differs = (with_it != steps[:, None]).sum(0)
    follows: npt.NDArray[np.bool_] = ~against.any(0) & (differs <= _ROUNDED * len(steps))
    return follows


def are_next(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets are what comes next in a sequence, where that is seen.

    Args:
        values: Whole numbers [B, L], of which not all are the same; None for none.
        targets: Whole numbers [B, L] or [B L], equal to values[:, 1:] but for the last ones.
    """
    if values is None or targets is None or values.size != targets.size:
        return False
    is_whole = values.dtype.kind in "iu" and targets.dtype.kind in "iu"
    if not is_whole or values.ndim != _MATRIX or values.shape[1] < _MATRIX:
        return False
    is_moved = np.array_equal(values[:, 1:], targets.reshape(values.shape)[:, :-1])
    return bool(is_moved and (values != values.flat[0]).any())


def are_seen(values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None) -> bool:
    """Tell whether targets stand in a sequence, each at its own place, wherever one is asked.

    Args:
        values: Whole numbers [B, L]; None for none.
        targets: Whole numbers [B, L] or [B L], negative where nothing is asked.
    """
    if values is None or targets is None or values.size != targets.size:
        return False
    is_whole = values.dtype.kind in "iu" and targets.dtype.kind in "iu"
    if not is_whole or values.ndim != _MATRIX or values.shape[1] < _MATRIX:
        return False
    asked = targets.reshape(-1) >= 0
    answers = targets.reshape(-1)[asked]
    if len(answers) < _FEWEST_PLACES or (answers == answers[0]).all():
        return False
    return np.array_equal(values.reshape(-1)[asked], answers)


def are_masked(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Tell whether what is asked at some places stands at others as well, which are no padding.

    Half of all different answers must.

    Args:
        values: Whole numbers [B, L].
        targets: Whole numbers [B, L] or [B L], negative where nothing is asked.
    """
    asked = targets.reshape(values.shape) >= 0
    is_shown = np.isin(np.unique(values[asked]), values[~asked])
    return bool(2 * is_shown.sum() >= len(is_shown) > 0)
