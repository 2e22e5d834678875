from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics import row_memory
from rule_runtime.numerics.row_memory import MAX_ROWS, RowMemory, fingerprints


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.booleans(), min_size=1), max_size=20))
def test_streaks_are_counted_row_by_row(steps: list[dict[str, bool]]) -> None:
    memory: dict[str, Any] = {}
    expected: dict[str, int] = {}
    for step in steps:
        rows = RowMemory(memory, [(name, "w") for name in step])
        streaks = rows.update(np.array(list(step.values())))
        expected |= {name: expected.get(name, 0) + 1 if bad else 0 for name, bad in step.items()}
        assert streaks.tolist() == [expected[name] for name in step]
        memory = json.loads(json.dumps(memory))


def test_fingerprints_differ_where_a_number_does() -> None:
    columns = [np.array([1.0, 1.0, 1.0, np.nan]), np.array([2.0, 2.0, 2.0 + 1e-15, 2.0])]
    one, same, other, unknown = fingerprints(columns)
    assert one == same
    assert len({one, other, unknown}) == 3


def test_a_row_is_a_tensor_of_a_worker() -> None:
    pairs, memory = [("a", "w"), ("a", "v"), ("b", "w")], dict[str, Any]()
    RowMemory(memory, pairs).update(np.array([True, False, True]), [1, 2, 3])
    again = RowMemory(memory, [*pairs[:2], ("c", "w")])
    assert again.fingerprints.tolist() == [1, 2, 0]
    assert again.update(np.array([True, True, True])).tolist() == [2, 1, 1]
    assert RowMemory(memory, pairs[2:]).fingerprints.tolist() == [3]


def test_the_string_of_earlier_versions_is_read() -> None:
    memory: dict[str, Any] = {"rows": "s6dDDQAAAAACAAn2SpQHAAAAAQA="}
    rows = RowMemory(memory, [("a", "w"), ("b", "w")])
    assert rows.fingerprints.tolist() == [7, 0]
    assert rows.update(np.array([True, True]), rows.fingerprints).tolist() == [2, 3]


def test_it_is_bounded_and_keeps_the_same_rows() -> None:
    memory, bad = dict[str, Any](), np.ones(3000, dtype=bool)
    for _ in range(3):
        streaks = RowMemory(memory, [(str(at), "w") for at in range(3000)]).update(bad)
        assert len(memory["rows"]) <= 28_000
    assert np.count_nonzero(streaks == 3) == MAX_ROWS
    assert np.count_nonzero(streaks == 0) == 3000 - MAX_ROWS


def test_the_longest_streak_does_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_memory._LONGEST < 1 << 16
    monkeypatch.setattr(row_memory, "_LONGEST", 5)
    memory: dict[str, Any] = {}
    for _ in range(9):
        (streak,) = RowMemory(memory, [("a", "w")]).update(np.array([True]))
    assert streak == 5
