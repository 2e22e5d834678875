"""Detects columns that determine a target, alone or as a sum.

Shape legend: B = examples, N = rows, C = columns, K = classes.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.loss_pair import MIN_ROWS

__all__ = ["Leak", "find_leak", "separating_columns", "skills", "summed_columns"]

_Numbers = npt.NDArray[np.float64]

_LEAKS: Final = 0.95
"""Minimum skill of a leaking column; good features reach 0.7."""
_NEAR: Final = 0.8
"""Skill of another column from which the target is easy to predict, so that nothing leaks."""
_CLASS_ROWS: Final = 4
"""Factor of the required examples for classes: a class carries less information than a number."""
_MAX_CANDIDATES: Final = 64
"""Number of columns whose skills are stored: the best of the first batch."""
_MAX_NUMBERS: Final = 3072
"""Maximum stored numbers for classes, 4 bytes each: two for each class and column."""
_MAX_VALUES: Final = 64
"""Maximum distinct values of classes; more are numbers."""
_SEPARATED: Final = 0.8
"""Share of the classes to separate, or all but one; healthy inputs separate one of eight."""
_GAP: Final = 2.0
"""Distance of a class from the others, in units of its width; easy tasks have smaller ones."""
_ROWS_OF_CLASS: Final = 3
"""Minimum rows of a class; one or two have unique values in many columns by chance."""
_EXACT: Final = 1e-6
"""Share of the variance that rounding leaves unexplained in a sum."""
_NEGLIGIBLE: Final = 1e-3
"""Factors below this share of the largest do not belong to a sum."""
_MISSING: Final = -1e30
"""Replacement for missing numbers, and for those whose squares overflow."""


class Leak(NamedTuple):
    """Columns that determine a target, if any, and the number of rows that showed it."""

    columns: list[int]
    num_rows: int


def find_leak(
    state: dict[str, Any],
    columns: npt.NDArray[Any],
    targets: _Numbers,
    *,
    examples: npt.NDArray[Any],
    are_classes: bool,
    min_examples: int,
) -> Leak | None:
    """Add a batch; return the columns that leak the target, None if there are too few examples.

    A number leaks if one column predicts it, or if it is a sum of columns. Classes leak if columns
    separate them. Nothing is reported for easy tasks: if another column is almost as good, more
    than half of the columns leak, or the order of the rows also predicts the target.

    Args:
        state: Results of earlier batches, at most 30 KB. Changed in place.
        columns: Inputs [N, C].
        targets: Finite numbers or classes [N].
        examples: The examples of the rows [B, ...]: N is B, or B times a number of positions.
        are_classes: Whether integers are classes; few values in many rows always are.
        min_examples: Required distinct examples for a number's leak; four times as many for
            classes.
    """
    if "found" in state:
        return Leak(*state["found"])
    if state.setdefault("width", columns.shape[1]) != columns.shape[1]:
        return None  # as in texts that are padded to the longest of a batch
    if len(targets) < MIN_ROWS:
        return None
    table = np.where(np.abs(columns) < -_MISSING, columns, _MISSING)
    are_classes = state.setdefault("are_classes", _are_classes(targets, is_known=are_classes))
    by_column, by_order = _mean_skills(state, table, targets)
    if are_classes:
        found = separating_columns(state, table, targets)
        min_examples *= _CLASS_ROWS
    else:
        parts = summed_columns(table, targets)
        state["parts"] = parts if state.get("parts", parts) == parts else []
        found = [at for at, skill in by_column.items() if skill >= _LEAKS] or state["parts"]
    if not _are_enough(state.setdefault("examples", []), examples, min_examples):
        return None
    is_near = any(skill >= _NEAR for at, skill in by_column.items() if at not in found)
    is_shared = not are_classes and 2 * len(found) > columns.shape[1]
    is_easy = is_near or is_shared or by_order >= _LEAKS
    leak = Leak([] if is_easy else found, state["rows"])
    state.clear()
    state["found"] = list(leak)
    return leak


def skills(columns: _Numbers, targets: _Numbers) -> _Numbers:
    """Return how well each column [N, C] predicts targets [N]: 1 without error, 0 for chance.

    The rank of each row's target is predicted by the mean of its neighbours in column order. The
    skill is 1 minus the mean error relative to that of the median.
    """
    _, at, counts = np.unique(targets, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[at]
    by_chance = np.abs(ranks - np.median(ranks)).mean()
    ranks = ranks[np.argsort(columns, axis=0, kind="stable")]
    errors = np.abs(ranks[1:-1] - (ranks[2:] + ranks[:-2]) / 2).mean(0)
    found: _Numbers = 1 - errors / by_chance if by_chance > 0 else np.zeros(columns.shape[1])
    return found


def summed_columns(columns: _Numbers, targets: _Numbers) -> list[int]:
    """Return the columns [N, C] whose weighted sum equals the targets [N].

    The factors are fitted on every second row and tested on the others. It returns none if half of
    the rows are fewer than two per column.
    """
    if len(targets) < 4 * columns.shape[1]:
        return []
    values = np.column_stack([columns, targets]).astype(np.float64)
    values = (values - values[::2].mean(0)) / np.maximum(values[::2].std(0), _EXACT)
    table, target = values[:, :-1], values[:, -1]
    factors, *_ = np.linalg.lstsq(table[::2], target[::2], rcond=None)
    left = target[1::2] - table[1::2] @ factors
    if not target[1::2].any() or np.square(left).mean() > _EXACT:
        return []
    sizes = np.abs(factors)
    return [int(at) for at in np.flatnonzero(sizes > _NEGLIGIBLE * sizes.max())]


def separating_columns(
    state: dict[str, Any], columns: npt.NDArray[Any], classes: _Numbers
) -> list[int]:
    """Return the columns that separate four of five classes, or all but one, in all rows so far.

    A column separates a class if its range is disjoint from those of all other classes, by at least
    twice its width. The result has each column that separates enough classes, otherwise all columns
    that do so together. The state has names, numbers of rows and ranges of the classes in earlier
    batches, for the best columns; it changes in place. The columns [N, C] are finite.
    """
    known: list[float] = state.get("classes", [])
    names = [*known, *(name for name in np.unique(classes).tolist() if name not in known)]
    chosen: list[int] = state.get("columns", list(range(columns.shape[1])))
    if not chosen or len(names) > _MAX_VALUES:
        state["columns"] = []
        return []
    low, high = _ranges(state, len(names), len(chosen))
    counts = np.array([*state.get("counts", ()), *[0] * (len(names) - len(known))])
    table = columns[:, chosen].astype(np.float32)
    for at, name in enumerate(names):
        own = table[classes == name]
        counts[at] += len(own)
        low[at] = np.minimum(low[at], own.min(0, initial=np.inf))
        high[at] = np.maximum(high[at], own.max(0, initial=-np.inf))
    separated = _separated(low, high)
    order = np.argsort(-(separated * (counts - 1)[:, None]).sum(0), kind="stable")
    best = np.sort(order[: _MAX_NUMBERS // (2 * len(names))])
    ranges = np.stack([low, high])[:, :, best]
    state["classes"], state["counts"] = names, counts.tolist()
    state["columns"] = [chosen[at] for at in best]
    state["ranges"] = base64.b64encode(ranges.tobytes()).decode()
    return [chosen[at] for at in _enough(separated[counts >= _ROWS_OF_CLASS])]


def _ranges(state: dict[str, Any], num_classes: int, num_columns: int) -> npt.NDArray[np.float32]:
    """Return the lower and upper bounds of classes in columns so far [2, K, C]; may be empty."""
    ends = np.full((2, num_classes, num_columns), np.inf, np.float32)
    ends[1] *= -1
    stored = np.frombuffer(base64.b64decode(state.get("ranges", "")), np.float32)
    known = len(state.get("classes", ()))
    ends[:, :known] = stored.reshape(2, known, num_columns)
    return ends


def _separated(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which classes each column separates, by the range of each class [K, C]."""
    separated = np.zeros(low.shape, np.bool_)
    for at in range(len(low)):
        others = np.arange(len(low)) != at
        # Negative if ranges overlap.
        gaps = np.maximum(low[others] - high[at], low[at] - high[others])
        gap = gaps.min(0, initial=np.inf)
        separated[at] = (gap > 0) & (gap >= _GAP * (high[at] - low[at]))
    return separated


def _enough(separated: npt.NDArray[np.bool_]) -> list[int]:
    """Return the columns that separate enough classes [K, C], each alone or all together."""
    needed = min(_SEPARATED * len(separated), len(separated) - 1)  # the last class is the remainder
    if len(separated) <= 1 or separated.any(1).sum() < needed:
        return []
    alone = separated.sum(0) >= needed
    return [int(at) for at in np.flatnonzero(alone if alone.any() else separated.any(0))]


def _mean_skills(
    state: dict[str, Any], columns: npt.NDArray[Any], targets: _Numbers
) -> tuple[dict[int, float], float]:
    """Return mean skills of the best columns over all batches, and that of the row order."""
    order = np.arange(len(targets))
    of_batch = skills(np.column_stack([columns, order]), targets)
    if "candidates" not in state:
        best = np.argsort(-of_batch[:-1], kind="stable")[:_MAX_CANDIDATES]
        state["candidates"], state["skills"] = np.sort(best).tolist(), [0.0] * (len(best) + 1)
    state["rows"] = state.get("rows", 0) + len(targets)
    before, now = np.array(state["skills"]), of_batch[[*state["candidates"], -1]]
    means = before + len(targets) / state["rows"] * (now - before)
    state["skills"] = means.tolist()
    return dict(zip(state["candidates"], means[:-1], strict=True)), float(means[-1])


def _are_classes(targets: _Numbers, *, is_known: bool) -> bool:
    """Return whether targets are classes: integers of a class loss, or repeating values."""
    if is_known and (targets == np.rint(targets)).all():
        return True
    _, counts = np.unique(targets, return_counts=True)
    return len(counts) <= _MAX_VALUES and bool(np.median(counts) > 1)


def _are_enough(seen: list[int], examples: npt.NDArray[Any], num_needed: int) -> bool:
    """Add the checksums of examples [B, ...]; return whether enough distinct ones were seen."""
    known = set(seen)
    for example in np.ascontiguousarray(examples):
        if len(known) < num_needed:
            known.add(zlib.crc32(example.tobytes()))
    seen[:] = sorted(known)
    return len(seen) >= num_needed
