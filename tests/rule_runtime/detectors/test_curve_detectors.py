"""Detectors of curves against worked examples and an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rule_runtime.detectors.curves import (
    divergence,
    factor_of_chance,
    first_jump,
    is_falling,
    noise,
    oscillation,
    plateau,
    spike,
    spread,
)
from rule_runtime.detectors.streak import streak

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(0, 1, 60)


def test_the_spread_agrees_with_scipy() -> None:
    for size in range(3, 40):
        numbers = RANDOM.integers(-5, 5, size).astype(float)
        expected = stats.median_abs_deviation(numbers, scale="normal")
        assert spread(numbers) == pytest.approx(expected, rel=1e-4)


def test_the_noise_is_that_around_the_trend() -> None:
    trend = np.linspace(50, 0, 4000)
    assert noise(trend + RANDOM.normal(0, 2, 4000)) == pytest.approx(2, rel=0.05)
    assert noise(np.array([1.0])) == 0


def test_a_streak_begins_again_after_one_negative() -> None:
    state: dict[str, int] = {}
    counts = [streak(state, is_bad=bad) for bad in (True, True, False, True)]
    assert counts == [1, 2, 0, 1]
    assert streak(state, is_bad=True, name="other") == 1


def test_trends_agree_with_kendalls_tau() -> None:
    for _ in range(100):
        numbers = RANDOM.normal(size=30) + RANDOM.normal(0, 0.05) * np.arange(30)
        tau = stats.kendalltau(np.arange(30), numbers)
        if abs(tau.pvalue - 0.1) > 0.02:  # scipy's is exact, without continuity correction
            assert is_falling(numbers) is bool(tau.statistic < 0 and tau.pvalue < 0.1)
    # 10 numbers that fall: S = -45, variance 10 x 9 x 25 / 18.
    assert is_falling(-np.arange(10.0))
    # 4 numbers that fall: S = -6, variance 4 x 3 x 13 / 18, so z = -5 / 2.94.
    assert is_falling(-np.arange(4.0))
    assert not is_falling(-np.array([1.0, 2.0, 4.0, 3.0]))  # z = -3 / 2.94
    assert not any(map(is_falling, (np.empty(0), np.ones(1), np.array([2.0, 1.0]), np.ones(9))))


def test_the_limit_of_a_spike_by_a_worked_example() -> None:
    before = np.array([1.0, 1.1, 0.9, 1.2, 0.8])  # the median absolute deviation is 0.1
    found = spike(before, np.array([3.0, 2.5]), num_deviations=8, least_rise=0.1)
    assert found == pytest.approx((1.0, 1.0 + 8 * 0.14826))
    assert not spike(before, np.array([3.0, 1.2]), num_deviations=8, least_rise=0.1)
    for num_deviations, least_rise, limit in ((1, 2.5, 3.5), (0.1, 0.1, 1.4)):
        found = spike(before, np.array([9.0]), num_deviations=num_deviations, least_rise=least_rise)
        assert found == pytest.approx((1.0, limit))


@pytest.mark.parametrize(
    ("series", "before"),
    [
        ([1.0, *[2.0] * 12], 1.0),  # above its beginning
        ([4.0, *[1.0] * 12, *[3.5] * 8], 1.0),  # above its lowest level
        ([4.0, *[1.0] * 12, *[2.5] * 8], None),  # by less than half of the beginning
        ([4.0, *[1.0] * 12, *[3.5] * 7], None),  # for too short
        ([4.0, *[1.0] * 12, *np.linspace(6, 3.5, 8)], None),  # it comes down again
        ([1.0, *(2 + 5 * np.abs(NOISE))], None),  # it scatters
        ([0.0, *[2.0] * 12], None),
    ],
)
def test_divergence(series: list[float], before: float | None) -> None:
    found = divergence(np.array(series[:1]), np.array(series), 0.5)
    assert (found.before if found else None) == before
    assert found is None or found.now > found.limit


def test_a_jump_is_relative_to_the_loss_before_training() -> None:
    jump = np.array([0.7, 18.0, 30.0, 9.0, 5.0, 12.0, 3.0, 4.0, 2.5, 2.0])  # it scatters
    found = divergence(jump[:5], jump, 0.5, rows=32)
    assert found is not None
    assert found.before == found.scale == 0.7
    assert found.limit == pytest.approx(3 * 0.7)
    assert divergence(jump[:5], jump, 0.5) is None
    assert divergence(jump[:5], jump, 0.5, rows=8) is None
    recovered = np.array([*jump, 0.9])
    assert divergence(jump[:5], recovered, 0.5, rows=32) is None
    for first, num in (([1, 3.1], 1), ([2, 1, 7], 2), ([1, 2], 0), ([0, 9], 0)):
        assert first_jump(np.array(first), rows=32) == num
    assert not first_jump(jump, rows=8)
    assert not first_jump(jump, rows=float("nan"))


def test_few_rows_widen_all_bounds() -> None:
    # The mean of n squared errors has a relative deviation of sqrt(2 / n); two of them are unusual.
    assert factor_of_chance(32) == pytest.approx(np.exp(2 * (2 / 32) ** 0.5))
    assert factor_of_chance(0.5) == factor_of_chance(1)
    assert factor_of_chance(float("nan")) == 1
    calm, swings = 2.0 + 0.01 * NOISE[:10], np.tile([1.5, 2.5], 10)
    assert oscillation(calm, swings, rows=64)
    assert not oscillation(calm, swings, rows=4)
    before, now = np.ones(5), np.array([3.0])
    assert spike(before, now, num_deviations=8, least_rise=0.1, rows=32)
    assert not spike(before, now, num_deviations=8, least_rise=0.1, rows=4)
    higher = np.array([2.0, *[1.0] * 12, *[2.3] * 8])
    assert divergence(higher[:5], higher, 0.5, rows=4)
    assert not divergence(higher[:5], higher, 0.5, rows=1)


def test_chance_does_not_make_batches_of_few_rows_diverge() -> None:
    random, num_rises = np.random.default_rng(0), 0
    for rows in (1, 2, 4, 8, 16, 32):
        for _ in range(200):
            losses = random.chisquare(rows, 40) / rows
            found = divergence(losses[:5], losses, 0.5, rows)
            num_rises += found is not None
    assert num_rises <= 1


def test_an_oscillation_has_grown_and_does_not_fall() -> None:
    calm, swings = 2.0 + 0.01 * NOISE[:10], np.tile([1.5, 2.5], 10)
    # All differences of neighbours are 1, so the scatter is 1.4826 / sqrt(2).
    assert oscillation(calm, swings) == pytest.approx(1.4826 / 2**0.5 / 2, rel=0.01)
    assert oscillation(np.tile([1.5, 2.5], 5), swings) == 0  # it swung at the beginning
    assert oscillation(calm, swings * np.linspace(1, 0.5, 20)) == 0  # it falls
    assert oscillation(calm, 0.3 * swings) == 0  # it is low
    assert oscillation(calm, 0.6 * swings) == 0  # it fell by more than it scatters
    assert oscillation(calm, swings - 2) == 0


@pytest.mark.parametrize(
    ("series", "fall"),
    [
        (2.0 + 0.01 * NOISE, 0.0),
        (2.0 - 0.2 * (np.arange(60) > 2) + 0.01 * NOISE, 0.1),  # it fell, and that is enough
        (2.0 - 0.001 * np.arange(60), None),  # it falls
        (2.0 + 0.5 * NOISE, None),  # it is too noisy
        (2.0 + 0.01 * NOISE[:15], None),  # it is too short
        (0.01 * NOISE, None),
    ],
)
def test_a_plateau_is_where_a_series_began(series: np.ndarray, fall: float | None) -> None:
    found = plateau(series, 0.05)
    assert plateau(series, 0.05, lowest=1.5) is None  # it fell long ago
    if fall is None or fall >= 0.05:
        assert found is None
    else:
        assert found is not None
        assert 1 - found[1] / found[0] == pytest.approx(fall, abs=0.01)
