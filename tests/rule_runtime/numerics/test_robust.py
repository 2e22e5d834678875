from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rule_runtime.numerics.robust import noise, rank_sum, spread, trend

SERIES = st.lists(st.integers(-5, 5), min_size=3, max_size=40).map(np.array)


@given(SERIES)
def test_the_trend_agrees_with_kendalls_tau(numbers: np.ndarray) -> None:
    # tau-b times the root of the pairs that are not tied is the score of Mann and Kendall.
    n = len(numbers)
    score = sum(np.sign(numbers[i] - numbers[j]) for i in range(n) for j in range(i))
    z = trend(numbers.astype(float))
    assert np.sign(z) == (np.sign(score) if abs(score) > 1 else 0)
    tau = stats.kendalltau(np.arange(n), numbers).statistic
    if not np.isnan(tau) and abs(score) > 1:
        assert np.sign(tau) == np.sign(z)


def test_the_trend_is_nearly_normal_without_one() -> None:
    rng = np.random.default_rng(0)
    z = [trend(rng.exponential(1, 20)) for _ in range(2000)]
    assert abs(np.mean(z)) < 0.1
    assert np.std(z) == pytest.approx(1, abs=0.1)
    assert np.mean(np.array(z) < -1.64) == pytest.approx(0.05, abs=0.02)


def test_the_trend_by_a_worked_example() -> None:
    # 5 numbers, 9 pairs rise and 1 falls: S = 8, variance 5 x 4 x 15 / 18.
    assert trend(np.array([1.0, 2.0, 4.0, 3.0, 5.0])) == pytest.approx(7 / np.sqrt(300 / 18))
    # Two are equal: S = 9 - 0, the variance is less by 2 x 1 x 9 / 18.
    assert trend(np.array([1.0, 2.0, 3.0, 3.0, 5.0])) == pytest.approx(8 / np.sqrt(282 / 18))


@pytest.mark.parametrize("numbers", [[], [1.0], [2.0, 1.0], [3.0] * 10])
def test_too_short_or_constant_series_have_no_trend(numbers: list[float]) -> None:
    assert trend(np.array(numbers)) == 0


@given(SERIES)
def test_the_spread_agrees_with_scipy(numbers: np.ndarray) -> None:
    expected = stats.median_abs_deviation(numbers, scale="normal")
    assert spread(numbers.astype(float)) == pytest.approx(expected, rel=1e-4)


def test_the_noise_is_that_about_the_course() -> None:
    rng = np.random.default_rng(1)
    course = np.linspace(50, 0, 4000)
    assert noise(course + rng.normal(0, 2, 4000)) == pytest.approx(2, rel=0.05)
    assert noise(np.array([1.0])) == 0


def test_the_rank_sum_agrees_with_scipy() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(0.5, 1, 15), rng.normal(0, 1, 20)
    u = stats.mannwhitneyu(one, other).statistic
    assert rank_sum(one, other) == pytest.approx((u - 150) / np.sqrt(300 * 36 / 12))
    assert rank_sum(one, np.array([])) == 0
