"""Ranges that a class has to itself, beside a search through all rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rule_runtime.numerics.own_ranges import are_values, own_ranges, still_own

NUMBERS = npst.arrays(np.float64, (12, 3), elements=st.integers(-3, 3).map(float))
ROWS = st.lists(st.booleans(), min_size=12, max_size=12).filter(lambda own: any(own[:6]))


def by_hand(columns: np.ndarray, own: np.ndarray) -> list[tuple[int, float, float]]:
    found = []
    for at, column in enumerate(columns.T):
        low, high = column[own].min(), column[own].max()
        if not any(low <= number <= high for number in column[~own]):
            found.append((at, low, high))
    return found


@given(columns=NUMBERS, chosen=ROWS)
def test_no_other_row_lies_in_a_range(columns: np.ndarray, chosen: list[bool]) -> None:
    own = np.array(chosen)
    found = own_ranges(columns, own)
    assert [(int(c), low, high) for c, low, high, _, _ in found] == by_hand(columns, own)
    assert are_values(found) == any(low == high for _, low, high in by_hand(columns, own))


@given(columns=NUMBERS, chosen=ROWS)
def test_batch_by_batch_is_as_at_once(columns: np.ndarray, chosen: list[bool]) -> None:
    own = np.array(chosen)
    first = own_ranges(columns[:6], own[:6])
    found = still_own(columns[6:], own[6:], first) if first else []
    assert [(int(c), low, high) for c, low, high, _, _ in found] == by_hand(columns, own)


def test_whole_numbers_are_names_and_have_no_ranges() -> None:
    columns = np.array([[1, 5], [2, 5], [7, 6], [8, 7]])
    own = np.array([True, True, False, False])
    assert [int(one[0]) for one in own_ranges(columns, own)] == [1]
    assert [int(one[0]) for one in own_ranges(columns.astype(float), own)] == [0, 1]
