from __future__ import annotations

import json

import numpy as np
import pytest

from rule_runtime.numerics.repeated_rows import MAX_ROWS, are_new

ROWS = np.random.default_rng(0).normal(size=(20, 3, 5))


@pytest.mark.parametrize(
    "rows",
    [ROWS, ROWS.astype(np.float32), ROWS > 0, (ROWS > 0) * 1.0, np.eye(20), np.arange(20)[:, None]],
)
def test_rows_are_new_once(rows: np.ndarray) -> None:
    seen: list[int] = []
    assert are_new(rows[:8], seen).all()
    order = np.random.default_rng(1).permutation(len(rows))
    seen = json.loads(json.dumps(seen))
    assert are_new(rows[order], seen).tolist() == (order >= 8).tolist()
    assert not are_new(rows[:, ::1], seen).any()


def test_of_equal_rows_of_a_batch_the_first_is_new() -> None:
    assert are_new(np.array([[1, 2], [3, 4], [1, 2]]), []).tolist() == [True, True, False]


def test_what_is_remembered_is_bounded() -> None:
    seen: list[int] = []
    for start in range(0, 4000, 100):
        assert are_new(np.arange(start, start + 100)[:, None], seen).all()
    assert len(seen) == MAX_ROWS
    assert len(json.dumps(seen)) < 8 << 10
    assert not are_new(np.arange(MAX_ROWS)[:, None], seen).any()


def test_a_batch_without_rows_is_no_error() -> None:
    assert not are_new(ROWS[:0], []).size
