"""Single columns that predict a target in rows that the prediction has not seen.

Shape legend: N = rows, C = columns.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.detectors.class_codes import identify_classes
from rule_runtime.numerics.repeated_rows import are_new

__all__ = ["Prediction", "best_predictors", "linear_parts", "neighbour_errors"]

_Numbers = npt.NDArray[np.float64]

_PREDICTS: Final = 0.99
"""Share of the variance of ranks that a leaked number explains; good features stay below 0.95."""
_NEAR: Final = 0.95
"""Skill of another column from which on the target is easy, and no single column a leak."""
_NEAR_WITHOUT_MARKS: Final = 0.5
"""The same, of columns in which no class has one single value: classes may lie far apart."""
_MIN_ROWS: Final = 8
"""Rows of a batch; fewer say little about neighbours."""
_MAX_CANDIDATES: Final = 64
"""Columns whose errors the state holds: those with the smallest in the first batch."""
_CLASS_ROWS: Final = 4
"""Times as many rows must show that classes are predicted: a class says less than a number."""
_MAX_VALUES: Final = 64
"""Values that are classes; more are numbers."""
_MIN_TURNS: Final = 0.25
"""Turns of numbers, in rows; in a random order there are two for three rows."""
_MAX_PARTS: Final = 3
"""Columns that a sum has; with more, nearly any number is the sum of some."""
_HUGE: Final = 1e30
"""Values that count as missing, as do NaN and infinity: their squares overflow."""
_EXACT: Final = 1e-6
"""Share of the variance that a sum leaves unexplained by rounding."""
_OTHERS: Final = 0.02
"""Share that all other columns must leave unexplained; else the target follows from them, too."""


class Prediction(NamedTuple):
    """What predicts a target.

    Attributes:
        columns: The columns; empty if none do.
        num_rows: How many rows showed it.
        min_rows: How many were needed.
    """

    columns: list[int]
    num_rows: int
    min_rows: int


def best_predictors(
    state: dict[str, Any],
    columns: npt.NDArray[Any],
    targets: _Numbers,
    *,
    examples: npt.NDArray[Any],
    are_classes: bool,
    min_rows: int,
) -> Prediction | None:
    """Add a batch; return the columns that predict the target, None while too few rows were seen.

    A number is predicted by a column if its nearest neighbours in that column have nearly its rank,
    or if it is a sum of a few columns. Classes are predicted by columns that identify them. Nothing
    is reported if a further column comes near, or if more than half of the columns predict it.

    Args:
        state: What earlier batches said, at most 30 KB. Changed in place.
        columns: Inputs [N, C].
        targets: Finite numbers or classes [N].
        examples: What the rows are of [B, ...]: N is B, or B times a number of places. Rows of
            examples that were seen before do not count.
        are_classes: Whether the targets are classes; so are those with few values in many rows.
        min_rows: Rows that must show that a number is predicted; four times as many for classes.
    """
    if "found" in state:
        return Prediction(*state["found"])
    if state.setdefault("width", columns.shape[1]) != columns.shape[1]:
        return None  # as of texts that are padded to the longest of a batch
    is_new = are_new(examples, state.setdefault("seen", []))
    table, targets = _without_missing(columns, targets)
    if len(targets) < _MIN_ROWS:
        return None
    are_classes = state.setdefault("are_classes", _are_classes(targets, is_known=are_classes))
    skills = _skills(state, table, targets, are_classes=are_classes)
    near, has_marks = _NEAR, False
    if are_classes:
        found, has_marks = identify_classes(state.setdefault("codes", {}), table, targets)
        near = _NEAR if has_marks else _NEAR_WITHOUT_MARKS
    else:
        parts = linear_parts(table, targets)
        is_same = state.setdefault("parts", parts) == parts
        state["parts"] = parts if is_same else []
        found = [at for at, skill in skills.items() if skill >= _PREDICTS] or state["parts"]
    num_new = int(is_new.mean() * len(targets))
    state["rows"] = state.get("rows", 0) + min(num_new, _num_shown(targets, are_classes))
    min_rows *= _CLASS_ROWS if are_classes else 1
    if state["rows"] < min_rows:
        return None
    is_near = any(skill >= near for at, skill in skills.items() if at not in found)
    if is_near or (2 * len(found) > columns.shape[1] and not has_marks):
        found = []
    prediction = Prediction(found, state["rows"], min_rows)
    state.clear()
    state["found"] = list(prediction)
    return prediction


def neighbour_errors(
    columns: npt.NDArray[Any], targets: _Numbers, *, are_classes: bool
) -> tuple[_Numbers, float]:
    """Return the errors of predictions by the nearest rows in each column [C], and that by chance.

    Each row is left out and predicted by its neighbours in the order of the column. A class is that
    of the row before it, and the error is the share of wrong ones. The rank of a number is the mean
    rank of the rows before and after it, and the error the mean square, in standard deviations.

    Args:
        columns: Finite numbers [N, C].
        targets: Targets [N].
        are_classes: Whether the targets are classes.
    """
    order = np.argsort(columns, axis=0, kind="stable")
    _, at, counts = np.unique(targets, return_inverse=True, return_counts=True)
    if are_classes:
        sorted_classes = at[order]
        errors = (sorted_classes[1:] != sorted_classes[:-1]).mean(0)
        shares = counts / len(targets)
        return errors, float(1 - np.square(shares).sum())
    ranks = (np.cumsum(counts) - counts / 2)[at]
    sorted_ranks = ((ranks - ranks.mean()) / max(ranks.std(), _EXACT))[order]
    between = (sorted_ranks[2:] + sorted_ranks[:-2]) / 2
    by_chance = 1.5 * float(counts.size > 1)  # variance of a rank, and of the mean of two
    return np.square(sorted_ranks[1:-1] - between).mean(0), by_chance


def linear_parts(columns: npt.NDArray[Any], targets: _Numbers) -> list[int]:
    """Return up to three columns of which the targets are a sum, each times a factor.

    Factors are fitted on every second row, and the sum is compared with the others. None are
    returned if a fit of all other columns explains the targets as well, or if a half of the rows
    has not two for each column.

    Args:
        columns: Finite numbers [N, C].
        targets: Numbers [N].
    """
    if len(targets) < 4 * columns.shape[1] or columns.dtype.kind != "f":
        return []
    values = np.column_stack([columns, targets]).astype(np.float64)
    values = (values - values[::2].mean(0)) / np.maximum(values[::2].std(0), _EXACT)
    table, target = values[:, :-1], values[:, -1]
    parts: list[int] = []
    left = target
    for _ in range(min(_MAX_PARTS, table.shape[1])):
        parts.append(int(np.abs(left[::2] @ table[::2]).argmax()))
        left = _residual(table[:, parts], target)
        if np.square(left[1::2]).mean() < _EXACT:
            others = np.delete(table, parts, axis=1)
            is_open = np.square(_residual(others, target)[1::2]).mean() > _OTHERS
            return sorted(parts) if is_open else []
    return []


def _residual(table: _Numbers, target: _Numbers) -> _Numbers:
    """Return what a linear fit on every second row leaves of the target [N]."""
    factors, *_ = np.linalg.lstsq(table[::2], target[::2], rcond=None)
    residual: _Numbers = target - table @ factors
    return residual


def _skills(
    state: dict[str, Any], columns: npt.NDArray[Any], targets: _Numbers, *, are_classes: bool
) -> dict[int, float]:
    """Return the skill of the candidates over all batches: 1 without errors, 0 as by chance."""
    errors, by_chance = neighbour_errors(columns, targets, are_classes=are_classes)
    if "errors" not in state:
        best = np.sort(np.argsort(errors, kind="stable")[:_MAX_CANDIDATES])
        state["candidates"], state["errors"] = best.tolist(), [0.0] * len(best)
    candidates: list[int] = state["candidates"]
    state["errors"] = (np.array(state["errors"]) + len(targets) * errors[candidates]).tolist()
    state["by_chance"] = state.get("by_chance", 0.0) + len(targets) * by_chance
    if not state["by_chance"]:
        return {}
    skills = 1 - np.array(state["errors"]) / state["by_chance"]
    return dict(zip(candidates, skills.tolist(), strict=True))


def _without_missing(
    columns: npt.NDArray[Any], targets: _Numbers
) -> tuple[npt.NDArray[Any], _Numbers]:
    """Return the rows without missing values; if few are, all rows, without those columns."""
    is_known = np.abs(columns) < _HUGE
    is_whole = is_known.all(1)
    if 2 * is_whole.sum() >= len(targets):
        return columns[is_whole], targets[is_whole]
    return np.where(is_known.all(0), columns, 0), targets


def _are_classes(targets: _Numbers, *, is_known: bool) -> bool:
    """Return whether targets are classes: whole numbers of such a loss, or values that repeat."""
    if is_known and (targets == np.rint(targets)).all():
        return True
    _, counts = np.unique(targets, return_counts=True)
    return len(counts) <= _MAX_VALUES and bool(np.median(counts) > 1)


def _num_shown(targets: _Numbers, are_classes: bool) -> int:
    """Return how many rows show something: two for each turn of the targets.

    A turn is a change of the class, or of a number from rising to falling or back. In the order of
    time or of the class turns are few: any column that counts rows predicts such targets.
    """
    steps = np.sign(np.diff(targets))
    if are_classes:
        return 2 * int(np.count_nonzero(steps))
    steps = steps[steps != 0]
    num_turns = int(np.count_nonzero(steps[1:] != steps[:-1]))
    return 2 * num_turns if num_turns >= _MIN_TURNS * len(targets) else 0
