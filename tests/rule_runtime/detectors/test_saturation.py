"""Shares of inactive units, against a loop over the units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.detectors.saturation import inactive_units, saturated_units


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (0, 5), (4, 0)])
def test_one_output_of_each_unit_says_nothing(shape: tuple[int, ...]) -> None:
    assert np.isnan(inactive_units(np.zeros(shape), 1.0))


@pytest.mark.parametrize("shape", [(8, 5), (1, 5, 1), (1, 5, 3, 3), (2, 5, 3, 3, 3)])
def test_all_are_inactive(shape: tuple[int, ...]) -> None:
    assert inactive_units(np.zeros(shape), 1.0) == 100.0


def test_of_three_axes_the_one_with_more_inactive_units_counts() -> None:
    active = np.ones((4, 6, 8))
    active[:, :3] = 0
    assert inactive_units(active, 1.0) == 50.0
    active[..., :7] = 0
    assert inactive_units(active, 1.0) == 87.5


@given(st.integers(2, 5), st.integers(1, 5), st.integers(0, 100), st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_the_share_is_that_of_a_loop(batch: int, units: int, least: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-1, 2, (batch, units))
    inactive = [100 * np.mean(values[:, unit] != 0) < least for unit in range(units)]
    assert inactive_units(values, least) == 100 * sum(inactive) / units


@pytest.mark.parametrize(("outside", "percent"), [(9, 0.0), (10, 50.0)])
def test_a_unit_is_saturated_with_too_few_inputs_between_the_limits(
    outside: int, percent: float
) -> None:
    inputs = np.zeros((10, 2))
    inputs[:outside, 0] = 5.0  # a limit itself is outside
    found = saturated_units(inputs, np.array([-5.0, 5.0]), 10.0)
    assert found == percent
    assert saturated_units(np.full((4, 2), np.nan), np.array([-5.0, 5.0]), 10.0) == 0.0
    assert np.isnan(saturated_units(np.array([["a"], ["b"]]), np.array([-5.0, 5.0]), 10.0))
