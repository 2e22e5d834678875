from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.agreement import Agreement

CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6)


@given(CLASSES)
def test_chance_is_that_of_all_permutations(pairs: list[tuple[int, int]]) -> None:
    labels, answers = np.array(pairs).T
    found = Agreement.of(labels, answers)
    counts = [(np.array(order) == answers).sum() for order in permutations(labels)]
    assert found.right == (labels == answers).sum()
    assert found.by_chance == pytest.approx(np.mean(counts))
    assert found.variance == pytest.approx(np.var(counts), abs=1e-9)


def test_shares_and_deviations() -> None:
    labels = np.arange(400) % 4
    assert Agreement.of(labels, labels).share == 1.0
    assert Agreement.of(labels, (labels + 1) % 4).share == pytest.approx(-1 / 3)
    half = np.where(np.arange(400) < 200, labels, (labels + 1) % 4)
    assert Agreement.of(labels, half).share == pytest.approx(1 / 3)
    assert Agreement.of(labels, half).z == pytest.approx(100 / np.sqrt(400 * 3 / 16), rel=0.01)
    assert Agreement.of(labels, np.zeros(400, np.int64))[1:] == (100, 100, 0, 100)
    assert Agreement.of(labels, np.zeros(400, np.int64)).z == 0.0


def test_batches_add_up() -> None:
    random = np.random.default_rng(0)
    batches = [Agreement.of(*random.integers(0, 3, (2, 50))) for _ in range(400)]
    whole = Agreement.total(batches)
    assert whole.rows == 20_000
    assert abs(whole.z) < 3
    assert np.std([batch.z for batch in batches]) == pytest.approx(1.0, abs=0.1)
    assert Agreement.total([]) == (0, 0, 0, 0, 0)
    assert Agreement.total([]).share == Agreement.of(*np.zeros((2, 1), np.int64)).share == 0.0


@pytest.mark.parametrize(("num_rows", "is_enough"), [(700, False), (1000, True)])
def test_how_many_rows_show_a_share(num_rows: int, *, is_enough: bool) -> None:
    # Of two equal classes: 0.1 x n / 2 beyond chance beside three times the root of n / 4.
    labels = np.arange(num_rows) % 2
    found = Agreement.of(labels, np.roll(labels, 1))
    assert found.shows(0.1, 3.0) is is_enough
    few = (np.arange(num_rows) < 3).astype(np.int64)
    for answers in (few, np.zeros(num_rows, np.int64)):
        assert not Agreement.of(labels, answers).shows(0.1, 3.0)
