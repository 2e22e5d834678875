"""Columns of a batch that tell its targets exactly: the targets themselves, in some form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.class_columns import TOGETHER, columns_of_classes, rows_shown
from rule_runtime.numerics.class_limits import comes_near
from rule_runtime.numerics.column_blocks import Flags, are_usable, blocks, changes

__all__ = [
    "TOGETHER",
    "Told",
    "are_targets",
    "as_columns",
    "as_targets",
    "columns_of_all",
    "telling_columns",
]

_MOST_ELEMENTS: Final = 1 << 22
_FEWEST_ROWS: Final = 8
_FEWEST_TURNS: Final = 4
_TABLE: Final = 2
_ROUNDED: Final = 0.02
_MOST_TARGETS: Final = 32
_MORE_COLUMNS: Final = 2
_LOOKED_AT: Final = 64
_NEARLY: Final = 0.9
_OF_FURTHER: Final = 0.4
_PAIR: Final = 2


class Told(NamedTuple):
    """What tells a target in a batch.

    Attributes:
        columns: The columns that tell it `TOGETHER`, or that part a class, by its number as text;
            nothing tells the target where a list is empty.
        num_rows: How many rows show it; 0 if none do, or nothing tells it.
        alone: Those of the columns that tell all of it alone.
        are_classes: Whether it is of classes, or of so few numbers.
        is_near: Whether two classes are nearly told by a further column.
    """

    columns: Mapping[str, list[int]]
    num_rows: int
    alone: Sequence[int] = ()
    are_classes: bool = False
    is_near: bool = False


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
    is_one_hot = values.ndim == _TABLE and flat.shape[1] > 1
    is_one_hot &= bool(((flat == 0) | (flat == 1)).all() and (flat.sum(1) == 1).all())
    if is_one_hot:
        return np.asarray(flat.argmax(1)[:, None], np.float64)
    return flat if are_usable(flat).all() else None


def as_columns(values: npt.NDArray[Any], num_rows: int) -> npt.NDArray[Any] | None:
    """Return an input as columns [B, C], None if it has only one, or other rows than the targets.

    None as well if it has more than 4 million elements, for the time that they would take.

    Args:
        values: The input [B, ...].
        num_rows: B.
    """
    if values.dtype.kind not in "biuf" or values.ndim < _TABLE or len(values) != num_rows:
        return None
    if not num_rows < values.size <= _MOST_ELEMENTS:
        return None
    return values.reshape(num_rows, -1)


def are_targets(values: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Return whether an input is the targets themselves: a model that computes its own loss.

    Args:
        values: The input [...].
        targets: The targets [B, ...].
    """
    if len(values) != len(targets) or values.dtype.kind not in "biuf":
        return False
    if values.size == targets.size:
        return np.array_equal(values.reshape(-1), targets.reshape(-1))
    given, asked = as_targets(values), as_targets(targets)
    return given is not None and asked is not None and np.array_equal(given, asked)


def columns_of_all(
    columns: npt.NDArray[Any],
    targets: npt.NDArray[np.float64],
    *,
    known: Sequence[list[int] | None] | None = None,
    may_part: bool = False,
    are_classes: bool = False,
    is_new: Callable[[], Flags] | None = None,
) -> list[Told | None] | None:
    """Return what tells each target, None for those that show nothing; None if nothing could.

    Of more than 32 targets, as of images, so many are looked at that lie evenly. If inputs have
    less than twice the columns of the targets they may be what must be rebuilt, as of an
    autoencoder.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B, T], finite.
        known: For each target that is looked at, the only columns that may tell it together.
        may_part: Whether classes may be parted by gaps.
        are_classes: Whether whole numbers are classes, however many.
        is_new: Returns which rows count [B]; None for all. It is asked if a column tells a target.
    """
    num_targets = targets.shape[1]
    chosen = np.unique(np.linspace(0, num_targets - 1, _MOST_TARGETS).astype(np.intp))
    if num_targets > 1:
        is_large = columns.size * len(chosen) > _MOST_ELEMENTS
        if columns.shape[1] < _MORE_COLUMNS * num_targets or is_large:
            return None
    if known is None or len(known) != len(chosen):
        known = [None] * len(chosen)
    tell = partial(telling_columns, may_part=may_part, are_classes=are_classes, is_new=is_new)
    return [
        tell(columns, target, known=of_target)
        for target, of_target in zip(targets.T[chosen], known, strict=True)
    ]


def telling_columns(
    columns: npt.NDArray[Any],
    targets: npt.NDArray[np.float64],
    *,
    known: list[int] | None = None,
    may_part: bool = False,
    are_classes: bool = False,
    is_new: Callable[[], Flags] | None = None,
) -> Told | None:
    """Return which columns tell the targets, and how many rows show that it is no chance.

    With more than half as many different targets as rows, unless they are classes, those columns do
    that rise, or fall, wherever the targets rise (but for 2 % of the rows, for rounding), unless
    more than half of all columns do so nearly (in 9 of 10 rows), as in windows of a series that
    only grows; all rows show it. Else those that are the same wherever the targets are, if together
    they differ wherever the targets do; rows show it that have the target of another, of the most
    frequent target at most 4 for each of the others; only as many as the target changes from row to
    row, if that is half as often as in a random order. Failing these, if they may, 8 columns or
    more, of which some part a class of 4 rows or more (8 where there are two) from all others by a
    gap that is wider than either side, if each such class is parted by one, none by more than two
    (by a gap of a quarter of that), and half of all classes are such. No row shows anything if,
    from row to row, targets turn less than 4 times from rising to falling or back, or if rows lie
    class by class: a column that counts rows tells targets then. Rows with a number that is not
    finite are left out, or columns with one where that would be most of the rows.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B], finite.
        known: The only columns that may tell them, as they did before: four fifths of the classes
            must differ now, and a column need not vary.
        may_part: Whether classes may be parted by gaps.
        are_classes: Whether whole numbers are classes, however many.
        is_new: Returns which rows count [B]; None for all. It is asked if a column tells targets.

    Returns:
        None if all targets are equal, there are less than 8 rows, or too few of a class: for gaps,
        or (two rows of five are the only ones of theirs) to know which columns tell them together.
    """
    looked: npt.NDArray[Any] = columns if known is None else columns[:, known]
    is_whole = np.all(are_usable(looked), axis=1, keepdims=True)[:, 0]
    if 2 * is_whole.sum() < len(is_whole):
        is_whole[:] = True
    if not is_whole.all():
        columns, looked, targets = columns[is_whole], looked[is_whole], targets[is_whole]

    def new_rows() -> Flags:
        return np.ones(len(targets), np.bool_) if is_new is None else is_new()[is_whole]

    order = np.argsort(targets, kind="stable")
    steps = changes(targets[order][:, None])[0][:, 0]
    num_distinct = int(steps.sum()) + 1
    if num_distinct == 1 or len(targets) < _FEWEST_ROWS:
        return None
    names = np.arange(columns.shape[1]) if known is None else np.asarray(known, np.intp)
    if 2 * num_distinct <= len(targets) or (are_classes and (targets == np.rint(targets)).all()):
        grouped = (order, np.concatenate([[False], steps]))
        return _of_classes(columns, targets, grouped, known, new_rows=new_rows, may_part=may_part)
    ways = np.sign(np.diff(targets))
    ways = ways[ways != 0]
    # Of the end of one series and the beginning of the next, too, any column that counts does.
    is_shown = (ways[1:] != ways[:-1]).sum() >= _FEWEST_TURNS
    following = names[_following(looked, order, steps)].tolist()
    if not following or _most_follow(columns, order, steps):
        return Told({TOGETHER: []}, 0)
    return Told({TOGETHER: following}, int(is_shown and new_rows().sum()), following)


def _of_classes(
    columns: npt.NDArray[Any],
    targets: npt.NDArray[np.float64],
    grouped: tuple[npt.NDArray[np.intp], Flags],
    known: list[int] | None,
    *,
    new_rows: Callable[[], Flags],
    may_part: bool,
) -> Told | None:
    """Return which columns tell classes, as `telling_columns` does.

    Args:
        columns: Inputs [B, C].
        targets: Targets [B].
        grouped: The order of rows in which targets rise, and where the next class begins in it [B].
        known: The only columns that may tell them.
        new_rows: Returns which rows count [B].
        may_part: Whether classes may be parted by gaps.
    """
    order, begins = grouped
    classes = np.cumsum(begins, dtype=np.intp)
    names = np.arange(columns.shape[1]) if known is None else np.asarray(known, np.intp)
    told = columns_of_classes(
        columns if known is None else columns[:, known],
        order,
        classes,
        is_again=known is not None,
        may_part=may_part,
    )
    if told is None:
        return None
    found = {at: names[of] for at, of in told.columns.items()}
    if not all(map(len, found.values())):
        return Told({TOGETHER: []}, 0, are_classes=True)
    num_single = np.count_nonzero(np.bincount(classes) == 1)
    if known is None and not len(told.alone) and num_single > _OF_FURTHER * len(classes):
        return None  # those of classes that are in other batches only are missing
    every = {at for of in found.values() for at in of.tolist()}
    is_pair = int(classes[-1]) + 1 == _PAIR
    begins[0] = True
    numbers = targets[order][begins].tolist()
    return Told(
        {at if at == TOGETHER else str(numbers[int(at)]): of.tolist() for at, of in found.items()},
        rows_shown(classes, order, new_rows()),
        names[told.alone].tolist(),
        are_classes=True,
        is_near=is_pair and bool(comes_near(columns, targets, [*every])),
    )


def _following(
    columns: npt.NDArray[Any], order: npt.NDArray[np.intp], steps: Flags
) -> npt.NDArray[np.intp]:
    """Return which columns go one way where targets rise [B - 1], and hardly ever stand still."""
    may_tell = np.zeros(columns.shape[1], np.bool_)
    for at, block in blocks(columns, order[:: max(len(order) // _LOOKED_AT, 1)]):
        rises, falls = changes(block)
        may_tell[at] = ~rises.any(0) | ~falls.any(0)
    left = np.flatnonzero(may_tell)
    told = np.zeros(len(left), np.bool_)
    for at, block in blocks(columns[:, left], order):
        rises, falls = changes(block)
        for with_it, against in ((rises, falls), (falls, rises)):
            differs = (with_it != steps[:, None]).sum(0)
            told[at] |= ~against.any(0) & (differs <= _ROUNDED * len(steps))
    return left[told]


def _most_follow(columns: npt.NDArray[Any], order: npt.NDArray[np.intp], steps: Flags) -> bool:
    """Return whether most columns go one way nearly wherever targets rise [B - 1]."""
    num_following = 0
    for _, block in blocks(columns, order):
        ways = [way[steps].sum(0) for way in changes(block)]
        num_following += np.count_nonzero(np.maximum(*ways) >= _NEARLY * steps.sum())
    return bool(2 * num_following > columns.shape[1])
