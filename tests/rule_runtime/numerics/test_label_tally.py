from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.label_tally import LabelTally


def tally(counts: dict[int, int]) -> LabelTally:
    zeros = [0] * len(counts)
    return LabelTally.read([list(counts), list(counts.values()), zeros, zeros])


@pytest.mark.parametrize(
    ("here", "there", "rarer"),
    [
        ({0: 1000, 1: 10}, {0: 1000, 1: 10}, [False, False]),
        ({0: 1000, 1: 10}, {0: 100, 1: 100}, [False, True]),
        ({0: 1000, 1: 10}, {0: 5, 1: 5}, [False, True]),
        ({0: 1000, 1: 10}, {0: 2, 1: 2}, [False, False]),  # two rows are chance
        ({0: 1000, 1: 10}, {0: 100}, [False, False]),
        ({0: 1000, 1: 10}, {1: 100}, [False, True]),
        ({0: 1000, 1: 10}, {}, [False, False]),
        ({0: 1000, 5: 10, 9: 900}, {5: 100, 7: 3, 9: 100}, [False, True, True]),
    ],
)
def test_classes_are_rarer_than_elsewhere(
    here: dict[int, int], there: dict[int, int], rarer: list[bool]
) -> None:
    assert tally(here).rarer_than(tally(there)).tolist() == rarer


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.integers(1, 100))
def test_no_class_is_rarer_where_all_are_in_proportion(counts: list[int], times: int) -> None:
    here = tally(dict(enumerate(counts)))
    there = tally(dict(enumerate(times * count for count in counts)))
    assert not here.rarer_than(there).any()
    assert not there.rarer_than(here).any()
    assert np.array_equal(LabelTally.read([list(c) for c in here]).labels, here.labels)


ROWS = np.arange(45)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (ROWS % 5, 5),
        (1 + ROWS % 5, None),  # grades
        (ROWS % 2, None),
        (np.minimum(ROWS % 12, 5) % 5, None),  # counts: one is more frequent
        (ROWS, None),
        (ROWS[:30] % 5, None),  # too few
        (ROWS[:0], None),
    ],
)
def test_numbers_from_0_on_that_are_about_as_frequent_are_classes(
    labels: np.ndarray, classes: int | None
) -> None:
    counted = LabelTally.read(None).plus(labels, None, is_new=True)
    assert counted.num_balanced_classes(40) == classes
