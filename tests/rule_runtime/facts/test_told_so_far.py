from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from rule_runtime.facts.told_so_far import Kept, joined, known_columns, told_columns
from rule_runtime.numerics.telling_columns import TOGETHER, Told


def message(rows: int = 40, **columns: list[int]) -> Told:
    return Told({key.removeprefix("of_"): at for key, at in columns.items()}, rows)


def all_of(*columns: int, rows: int = 40) -> Told:
    """Return columns that tell a target, each alone."""
    return Told({TOGETHER: list(columns)}, rows, columns)


def classes(column: int, *, rows: int = 40) -> Told:
    """Return a column that tells classes."""
    return Told({TOGETHER: [column]}, rows, [column], are_classes=True)


def together(*columns: int) -> Told:
    return Told({TOGETHER: list(columns)}, 50)


def after(*batches: Sequence[Told | None]) -> Kept | None:
    """Return what is kept behind some batches, as a checkpoint would hold it."""
    kept: Kept | None = None
    for batch in batches:
        kept = json.loads(json.dumps(joined(kept, batch)))
    return kept


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([[all_of(3, 5)]], ([], 0)),  # too few rows
        ([[all_of(3, 5)], [all_of(5)]], ([5], 80)),
        ([[all_of(3)], [all_of(5)], [all_of(3)]], ([], 0)),
        ([[all_of(3)], [None], [all_of(3)]], ([3], 80)),  # all targets of a batch are equal
        ([[all_of(*range(2000), rows=0)], [all_of(1999)], [all_of(1999)]], ([1999], 80)),
        ([[all_of(3)], [all_of(4, rows=0)], [all_of(3)]], ([], 0)),
        ([[message(of_0=[1], of_1=[2, 3])], [message(of_1=[3], of_2=[1, 4])]], ([1, 3], 80)),
        ([[message(of_0=[1], of_1=[2])], [message(of_0=[2], of_1=[2])]], ([], 0)),
        ([[all_of(1, 2)], [message(of_0=[1], of_1=[1, 2])]], ([1], 80)),
        ([[all_of(1), None], [all_of(1), None]], ([1], 80)),  # half of the targets
        ([[all_of(1), None, None], [all_of(1), None, None]], ([], 0)),
        ([[all_of(1), None], [None, all_of(2)], [all_of(1), all_of(2)]], ([1, 2], 80)),
        ([[all_of(1), None], [all_of(1), all_of()]], ([], 0)),  # the other one is refuted
        ([[all_of(1), all_of(2)], [all_of(1)], [all_of(1)]], ([1], 80)),  # other targets
    ],
)
def test_columns_must_tell_in_all_batches(
    batches: list[list[Told | None]], found: tuple[list[int], int]
) -> None:
    assert told_columns(after(*batches), 50)[:2] == found


@pytest.mark.parametrize(
    ("batches", "columns", "is_together"),
    [
        ([[all_of(2, 3)]], [2], False),
        ([[together(2, 3)]], [2, 3], True),
        ([[all_of(2, 3)], [together(2, 3)]], [2, 3], True),  # it tells some of the classes only
        ([[message(50, of_0=[2], of_1=[3])]], [2, 3], True),
        ([[all_of(2), all_of(3)]], [2, 3], False),  # a target each
        ([[all_of(2), all_of(2)]], [2], False),
    ],
)
def test_columns_that_tell_only_together(
    batches: list[list[Told]], columns: list[int], *, is_together: bool
) -> None:
    assert told_columns(after(*batches), 40)[::2] == (columns, is_together)


@pytest.mark.parametrize(
    ("batches", "is_told"),
    [
        ([[classes(3, rows=199)]], False),
        ([[classes(3, rows=100)], [classes(3, rows=100)]], True),
        ([[classes(3, rows=100)], [all_of(3, rows=99)]], False),  # now of many numbers
        ([[classes(3, rows=99), classes(4, rows=99)]], False),
        ([[classes(3, rows=100), classes(4, rows=100)]], True),
        ([[classes(3, rows=50)] * 9], True),
    ],
)
def test_classes_need_more_rows(batches: list[list[Told]], *, is_told: bool) -> None:
    assert bool(told_columns(after(*batches), 50)[0]) is is_told


def test_nothing_is_kept_of_targets_that_are_not_told() -> None:
    assert after([all_of(3), all_of()]) == []
    assert after() is None


def test_what_is_kept_is_bounded() -> None:
    columns = list(range(500_000, 505_000))
    for batch in ([all_of(*columns)], [Told({str(at / 7): columns for at in range(40)}, 50)] * 32):
        assert len(json.dumps(after(batch, batch))) < 20 << 10
    later = [[Told({str(at): [1]}, 50)] for at in range(100)]
    assert len(json.dumps(after(*later))) < 1 << 10


def test_only_what_told_together_is_looked_at_again() -> None:
    kept = after([all_of(3, 9), message(of_0=[1]), None])
    assert known_columns(kept, 9) == [[3], None, None]
    assert known_columns(None, 9) is None
