from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rule_runtime.numerics.robust import noise, spread

SERIES = st.lists(st.integers(-5, 5), min_size=3, max_size=40).map(np.array)


@given(SERIES)
def test_the_spread_agrees_with_scipy(numbers: np.ndarray) -> None:
    expected = stats.median_abs_deviation(numbers, scale="normal")
    assert spread(numbers.astype(float)) == pytest.approx(expected, rel=1e-4)


def test_the_noise_is_that_about_the_course() -> None:
    rng = np.random.default_rng(1)
    course = np.linspace(50, 0, 4000)
    assert noise(course + rng.normal(0, 2, 4000)) == pytest.approx(2, rel=0.05)
    assert noise(np.array([1.0])) == 0
