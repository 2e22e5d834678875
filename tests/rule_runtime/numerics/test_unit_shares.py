"""Shares of units, against a loop over the units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.numerics.unit_shares import unit_axes, unit_percentages


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((), ()),
        ((5,), ()),
        ((8, 5), (1,)),
        ((1, 5), ()),
        ((1, 5, 1), (2,)),
        ((8, 5, 3), (1, 2)),
        ((8, 5, 3, 3), (1,)),
        ((1, 5, 3, 3), (1,)),
        ((2, 5, 3, 3, 3), (1,)),
        ((0, 5), ()),
        ((4, 0), ()),
    ],
)
def test_axes_of_units(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert unit_axes(shape) == axes


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_percentages_are_those_of_a_loop(shape: list[int], random: object) -> None:
    rng = np.random.default_rng(random.randrange(1 << 30))  # type: ignore[attr-defined]
    values = rng.integers(-1, 2, shape).astype(np.float32)
    for axis in unit_axes(tuple(shape)):
        expected = [
            100 * np.mean(np.take(values, unit, axis=axis) != 0) for unit in range(shape[axis])
        ]
        np.testing.assert_allclose(unit_percentages(values, axis), expected, rtol=1e-6)
