from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.numerics.statistics import tensor_statistics
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, MAX_TENSORS, WeightDrift

PLACES = [STATISTICS_COLUMNS.index(name) for name in DRIFT_COLUMNS]


def columns(*weights: object) -> np.ndarray:
    return np.stack([tensor_statistics(np.asarray(weight))[PLACES] for weight in weights])


@given(st.integers(0, 10**6), st.integers(2, 30), st.floats(1e-6, 10), st.integers(1, 9))
def test_the_bound_is_never_above_the_true_ratio(
    seed: int, size: int, scale: float, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    before = rng.normal(rng.normal(), 1, size)
    after = before + rng.normal(rng.normal(), scale, size)
    drift = WeightDrift({})
    drift.advance(3, [("w", "0")], columns(before))
    drift = WeightDrift(json.loads(json.dumps(drift.to_json())))
    (bound,), (moved,), names = drift.advance(3 + steps, [("w", "0")], columns(after))
    true = np.linalg.norm(after - before) / np.linalg.norm(before) / steps
    assert 0 <= bound <= true * (1 + 1e-9)
    root_mean_square = np.sqrt((before**2).mean())
    assert moved <= np.abs(after - before).max() / root_mean_square / steps * (1 + 1e-9)
    assert names == [("w", "0")]


def test_a_weight_that_is_scaled_has_an_exact_bound() -> None:
    weight = np.random.default_rng(0).normal(0, 1, (20, 20))
    drift = WeightDrift({})
    drift.advance(0, [("w", "0")], columns(weight))
    (bound,), _, _ = drift.advance(10, [("w", "0")], columns(1.5 * weight))
    assert bound == pytest.approx(0.05)


def test_what_has_no_ratio_is_left_out() -> None:
    drift = WeightDrift({})
    rows = [("zero", "0"), ("scalar", "0"), ("broken", "0"), ("fine", "0")]
    for step in (0, 1):
        values = columns(np.zeros(3), 1.0 + step, [np.nan, np.nan], [1.0, 2.0 + step])
        bound, moved, names = drift.advance(step, rows, values)
    assert names == [("fine", "0")]
    assert len(bound) == len(moved) == 1


def test_the_same_step_again_tells_nothing() -> None:
    drift = WeightDrift({})
    for _ in range(2):
        bound, moved, names = drift.advance(5, [("w", "0")], columns([1.0, 2.0]))
        assert (len(bound), len(moved), names) == (0, 0, [])


def test_of_many_weights_some_are_followed() -> None:
    drift, rows = WeightDrift({}), [(f"{at:04d}", "0") for at in range(1000)]
    values = np.tile(columns([1.0, 2.0]), (1000, 1))
    drift.advance(0, rows, values)
    *_, names = drift.advance(1, rows, values)
    assert len(names) == MAX_TENSORS
    assert (names[0], names[-1]) == (rows[0], rows[-1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("before", "after"), [(1.7e308, -1.7e308), (1e-300, 1e200)])
def test_a_move_that_is_too_large_for_a_number_is_the_largest_number(
    before: float, after: float
) -> None:
    drift = WeightDrift({})
    for step, value in enumerate((before, after)):
        row = np.array([[value, value, value, 0.0, abs(value), 4.0]])
        bound, moved, _ = drift.advance(step, [("w", "0")], row)
    largest = np.finfo(float).max
    assert (bound[0], moved[0]) == (largest, largest)
