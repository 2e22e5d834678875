"""Statistics prove nothing that values contradict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.numerics.tensor_change import (
    Tolerance,
    all_close,
    are_identical,
    movement,
    proven_different,
    ratio_bounds,
    update_ratio,
)
from rule_runtime.trial.tensor_statistics import tensor_statistics

EPSILON = 1e-9

floats = st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])
changes = st.floats(-3e-5, 3e-5) | st.sampled_from([0.0, 1.0, -1e3])
tolerances = st.builds(
    Tolerance,
    rtol=st.sampled_from([0.0, 1e-5, 0.1]),
    atol=st.sampled_from([0.0, 1e-8, 1.0]),
    equal_nan=st.booleans(),
)
Array = np.ndarray[Any, Any]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    one = np.array(draw(st.lists(floats, min_size=1, max_size=8)), dtype=np.float64)
    factors = draw(st.lists(changes, min_size=one.size, max_size=one.size))
    return one, one * (1 + np.array(factors))


def rows_of(*arrays: Array) -> list[Array]:
    return [tensor_statistics(array)[None, :] for array in arrays]


@given(pairs(), tolerances)
@settings(max_examples=500, deadline=None)
def test_what_is_proven_is_true(pair: tuple[Array, Array], tolerance: Tolerance) -> None:
    one, other = pair
    expected = np.allclose(one, other, *tolerance)
    assert all_close(one, other, tolerance) == expected
    ours, theirs = rows_of(one, other)
    if proven_different(ours, theirs, tolerance)[0]:
        assert not expected


@pytest.mark.parametrize(
    ("other", "is_proven"),
    [
        ([1.0, 2.0, 3.0, 4.1], True),
        ([1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0, np.inf], True),
        ([4.0, 3.0, 2.0, 1.0], False),
        ([1.0, 2.0, 3.0, 4.0], False),
    ],
)
def test_a_difference_is_proven_where_it_shows(other: list[float], is_proven: bool) -> None:
    ours, theirs = rows_of(np.array([1.0, 2.0, 3.0, 4.0]), np.array(other))
    assert proven_different(ours, theirs, Tolerance())[0] == is_proven


def test_a_usual_update_is_proven() -> None:
    """One step of an optimiser, about a thousandth of the weights, needs no values."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.05, (256, 128)).astype(np.float32)
    update = rng.normal(0, 5e-5, weight.shape).astype(np.float32)
    ours, theirs = rows_of(weight, weight + update)
    assert proven_different(ours, theirs, Tolerance())[0]


def test_identical_statistics() -> None:
    value = np.linspace(-1, 1, 9)
    same, other = rows_of(value, np.nextafter(value, 2))
    assert are_identical(same, same)[0]
    assert not are_identical(same, other)[0]
    with_inf, text = rows_of(np.array([np.inf, 1.0]), np.array(["a"]))
    assert not are_identical(with_inf, with_inf)[0]
    assert not are_identical(text, text)[0]


def test_long_tensors_are_compared_to_their_end() -> None:
    one = np.zeros((1 << 20) + 3, dtype=np.float32)
    other = one.copy()
    assert all_close(one, other, Tolerance())
    other[-1] = 1
    assert not all_close(one, other, Tolerance())


def test_shapes_and_texts() -> None:
    assert not all_close(np.zeros((2, 3)), np.zeros((3, 2)), Tolerance())
    assert all_close(np.array(["a"]), np.array(["a"]), Tolerance())
    assert not all_close(np.array(["a"]), np.array([1.0]), Tolerance())


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3, width=32)] * 2), min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_the_update_ratio_lies_within_its_bounds(values: list[tuple[float, float]]) -> None:
    now, before = np.array(values).T
    expected = np.abs(now - before).mean() / (np.abs(now).mean() + EPSILON)
    ratio = update_ratio(now, before, EPSILON)
    assert ratio == pytest.approx(expected, rel=1e-12, abs=1e-300)
    ours, theirs = rows_of(now, before)
    lower, upper = ratio_bounds(ours, theirs, EPSILON)
    assert lower[0] <= ratio * (1 + 1e-12)
    assert upper[0] >= ratio * (1 - 1e-12)


@pytest.mark.parametrize(
    ("now", "before"),
    [([np.nan, 1.0], [1.0, 1.0]), ([1.0, 1.0], [np.inf, 1.0]), ([], []), ([np.inf], [np.inf])],
)
def test_tensors_that_are_not_finite_have_no_update_ratio(now: Any, before: Any) -> None:
    one, other = np.array(now, dtype=np.float64), np.array(before, dtype=np.float64)
    assert np.isnan(update_ratio(one, other, EPSILON))
    if one.size:
        ours, theirs = rows_of(one, other)
        assert np.isnan(ratio_bounds(ours, theirs, EPSILON)).all()


def test_the_update_ratio_of_long_tensors_of_any_type() -> None:
    before = np.ones((1 << 20) + 5, dtype=np.float16)
    assert update_ratio(before * np.float16(2), before, EPSILON) == pytest.approx(0.5)
    whole = np.arange(10)
    assert update_ratio(whole + 1, whole, 0) == pytest.approx(1 / 5.5)


@given(st.integers(0, 10**6), st.integers(8, 30), st.floats(1e-6, 10))
def test_the_bound_of_a_movement_is_never_above_the_true_ratio(
    seed: int, size: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    before = rng.normal(rng.normal(), 1, size)
    now = before + rng.normal(rng.normal(), scale, size)
    (bound,), (moved,) = movement(*rows_of(now, before))
    assert 0 <= bound <= np.linalg.norm(now - before) / np.linalg.norm(before) * (1 + 1e-9)
    assert moved <= np.abs(now - before).max() / np.sqrt((before**2).mean()) * (1 + 1e-9)


def test_a_weight_that_is_scaled_has_an_exact_bound() -> None:
    weight = np.random.default_rng(0).normal(0, 1, (20, 20))
    assert movement(*rows_of(1.5 * weight, weight))[0][0] == pytest.approx(0.5)


@pytest.mark.parametrize("value", [np.zeros(9), np.array(1.0), np.ones(7), np.full(9, np.nan)])
def test_zeros_and_a_few_numbers_have_no_movement(value: Array) -> None:
    assert np.isnan(movement(*rows_of(value + 1, value))).all()
