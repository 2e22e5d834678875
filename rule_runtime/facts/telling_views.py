"""Rows of an input beside their targets, and what columns of them tell beside the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.marked_so_far import KeptMarks, marked_by, marked_so_far
from rule_runtime.facts.parted_so_far import KeptParting, parted_by, parted_so_far
from rule_runtime.facts.summed_so_far import KeptSum, summed_by, summed_so_far
from rule_runtime.facts.worded_so_far import KeptWords, worded_by, worded_so_far
from rule_runtime.numerics.column_blocks import Flags
from rule_runtime.numerics.repeated_rows import are_new
from rule_runtime.numerics.telling_columns import as_columns, as_targets

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory

__all__ = ["OF_TIMES", "Table", "View", "as_table", "may_be_told", "told_in_views"]

OF_TIMES: Final = "/times"
"""Ends the key of a view of the times of series."""
_TABLE: Final = 2
_SERIES: Final = 3

_Told = tuple[list[int], int, bool]
"""Columns, how many rows show that they tell targets, and whether only together."""


class View(NamedTuple):
    """Rows of an input, and the targets of each.

    Attributes:
        key: What it is called: the worker, the input, the targets, and which view it is.
        values: The input [B, ...].
        targets: The targets [B, ...].
        in_row: How many rows stand for one of the input as it was.
        of_targets: Name of the targets.
        worker: Whose they are.
        are_classes: Whether whole numbers among the targets are classes.
    """

    key: str
    values: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    in_row: int = 1
    of_targets: str = ""
    worker: str = ""
    are_classes: bool = False


class Table(NamedTuple):
    """A view as columns [B, C] and numbers or classes [B, T]; `is_new` tells which rows are new."""

    columns: npt.NDArray[Any]
    targets: npt.NDArray[np.float64]
    is_new: Callable[[list[int]], Flags]


def as_table(view: View) -> Table | None:
    """Return a view as a table; None if it is none.

    Args:
        view: The view.
    """
    # Of the features of trees only the first rows may be saved.
    numbers = as_targets(view.targets[: len(view.values)])
    columns = None if numbers is None else as_columns(view.values, len(numbers))
    if columns is None or numbers is None:
        return None
    whole = columns.reshape(len(columns) // view.in_row, -1)
    return Table(columns, numbers, lambda seen: are_new(whole, seen).repeat(view.in_row))


def may_be_told(memory: Memory, key: str) -> bool:
    """Return whether `told_in_views` may still find something in a view that it was given before.

    Args:
        memory: What it keeps.
        key: The key of the view.
    """
    return any(memory.get(kind, {}).get(key, True) for kind in _TELLING)


def told_in_views(memory: Memory, view: View, table: Table, rows: int) -> Iterator[_Told | None]:
    """Yield what parts two classes, marks each of several, makes up a number, names texts.

    Args:
        memory: `parted`, `marked`, `summed` and `worded`: of each view by its key what is kept of
            that, None where there is nothing to be told any more.
        view: The view.
        table: The same as a table.
        rows: How many rows must show that a number is told.

    Yields:
        None where nothing could be told; what tells has no columns while too few rows show it.
    """
    for kind, tell in _TELLING.items():
        all_kept = memory.setdefault(kind, {})
        if table.targets.shape[1] > 1:
            all_kept[view.key] = None
        is_left = view.key not in all_kept or all_kept[view.key] is not None
        yield tell(all_kept, view, table, rows) if is_left else None


def _parted(
    all_kept: dict[str, KeptParting | None], view: View, table: Table, rows: int
) -> _Told | None:
    if view.values.ndim not in (_TABLE, _SERIES) or view.key.endswith(OF_TIMES):
        all_kept[view.key] = None
        return None
    kept = all_kept.get(view.key)
    now = parted_so_far(kept, table.columns, table.targets[:, 0], table.is_new)
    if now is None:
        return None
    all_kept[view.key] = now if now["limits"]["columns"] else None
    return parted_by(now, rows), now["rows"], False


def _marked(
    all_kept: dict[str, KeptMarks | None], view: View, table: Table, rows: int
) -> _Told | None:
    kept, now = all_kept.get(view.key), None
    if _are_classes(view, table):
        now = marked_so_far(kept, table.columns, table.targets[:, 0], table.is_new)
    all_kept[view.key] = now
    if now is None:
        return None
    columns = marked_by(now, rows)
    return columns, sum(now["counts"].values()), len(columns) > 1


def _summed(
    all_kept: dict[str, KeptSum | None], view: View, table: Table, rows: int
) -> _Told | None:
    kept = all_kept.get(view.key)
    now = summed_so_far(kept, table.columns, table.targets[:, 0], table.is_new)
    if now is None:
        return None
    all_kept[view.key] = now if now["columns"] else None
    return summed_by(now, rows), now["rows"], len(now["columns"]) > 1


def _worded(
    all_kept: dict[str, KeptWords | None], view: View, table: Table, rows: int
) -> _Told | None:
    kept, now = all_kept.get(view.key), None
    if _are_classes(view, table):
        now = worded_so_far(kept, view.values, table.targets[:, 0], table.is_new)
    all_kept[view.key] = now
    return None if now is None else (worded_by(now, rows), sum(now["counts"].values()), False)


def _are_classes(view: View, table: Table) -> bool:
    """Return whether targets are classes, or so few numbers that they may be taken for some."""
    numbers = table.targets[:, 0]
    return view.are_classes or 2 * len(np.unique(numbers)) <= len(numbers)


_TELLING: Final[Mapping[str, Callable[[Any, View, Table, int], _Told | None]]] = {
    "parted": _parted,
    "marked": _marked,
    "summed": _summed,
    "worded": _worded,
}
