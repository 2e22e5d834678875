"""Statistics prove nothing that `numpy.allclose` contradicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.numerics.closeness import (
    Tolerance,
    all_close,
    are_identical,
    proven_close,
    proven_different,
)
from rule_runtime.numerics.statistics import tensor_statistics

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
    if proven_close(ours, theirs, tolerance)[0]:
        assert expected


@given(floats, changes, tolerances)
@settings(max_examples=300, deadline=None)
def test_of_scalars_everything_is_told(value: float, change: float, tolerance: Tolerance) -> None:
    one, other = np.array(value), np.array(value * (1 + change))
    if not np.isfinite(one) or not np.isfinite(other):
        return
    ours, theirs = rows_of(one, other)
    is_close = np.allclose(one, other, *tolerance)
    assert proven_close(ours, theirs, tolerance)[0] == is_close


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
    assert are_identical(same, same, Tolerance())[0]
    assert not are_identical(same, other, Tolerance())[0]
    with_nan, with_inf, text = rows_of(
        np.array([np.nan, 1.0]), np.array([np.inf, 1.0]), np.array(["a"])
    )
    assert not are_identical(with_nan, with_nan, Tolerance())[0]
    assert are_identical(with_nan, with_nan, Tolerance(equal_nan=True))[0]
    assert not are_identical(with_inf, with_inf, Tolerance())[0]
    assert not are_identical(text, text, Tolerance())[0]


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
