from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics import row_memory
from rule_runtime.numerics.row_memory import MAX_ROWS, RowMemory, fingerprints, row_keys


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.booleans(), min_size=1), max_size=20))
def test_streaks_are_counted_row_by_row(steps: list[dict[str, bool]]) -> None:
    rows, expected = RowMemory(""), {}
    for step in steps:
        keys = row_keys(list(step), ["w"] * len(step))
        streaks = rows.update(keys, np.zeros(len(keys), np.uint32), np.array(list(step.values())))
        expected |= {name: expected.get(name, 0) + 1 if bad else 0 for name, bad in step.items()}
        assert streaks.tolist() == [expected[name] for name in step]
        rows = RowMemory(json.loads(json.dumps(rows.to_json())))


def test_fingerprints_differ_where_a_number_does() -> None:
    columns = [np.array([1.0, 1.0, 1.0, np.nan]), np.array([2.0, 2.0, 2.0 + 1e-15, 2.0])]
    one, same, other, unknown = fingerprints(columns)
    assert one == same
    assert len({one, other, unknown}) == 3


def test_a_row_is_a_tensor_of_a_worker() -> None:
    keys = row_keys(["a", "a", "b"], ["w", "v", "w"])
    assert len(set(keys.tolist())) == 3
    rows = RowMemory("")
    rows.update(keys, np.array([1, 2, 3], np.uint32), np.array([True, False, True]))
    assert dict(rows.known(keys[:2])) == {int(keys[0]): (1, 1), int(keys[1]): (2, 0)}


def test_it_is_bounded_and_keeps_the_same_rows() -> None:
    keys = row_keys([str(at) for at in range(3000)], ["w"] * 3000)
    rows, bad = RowMemory(""), np.ones(3000, dtype=bool)
    for _ in range(3):
        streaks = rows.update(keys, np.zeros(3000, np.uint32), bad)
        assert len(rows.to_json()) <= 28_000
        rows = RowMemory(rows.to_json())
    assert np.count_nonzero(streaks == 3) == MAX_ROWS
    assert np.count_nonzero(streaks == 0) == 3000 - MAX_ROWS


def test_the_longest_streak_does_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_memory._LONGEST < 1 << 16
    monkeypatch.setattr(row_memory, "_LONGEST", 5)
    keys = row_keys(["a"], ["w"])
    rows = RowMemory("")
    for _ in range(9):
        (streak,) = rows.update(keys, keys, np.array([True]))
    assert streak == 5
