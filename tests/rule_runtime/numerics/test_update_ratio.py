"""The ratio, and the bounds of it that statistics give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.numerics.statistics import tensor_statistics
from rule_runtime.numerics.update_ratio import ratio_bounds, update_ratio

EPSILON = 1e-9
floats = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_the_ratio_lies_within_its_bounds(values: list[tuple[float, float]]) -> None:
    now, before = np.array(values).T
    expected = np.abs(now - before).mean() / (np.abs(now).mean() + EPSILON)
    ratio = update_ratio(now, before, EPSILON)
    assert ratio == pytest.approx(expected, rel=1e-12, abs=1e-300)
    lower, upper = ratio_bounds(
        tensor_statistics(now)[None, :], tensor_statistics(before)[None, :], EPSILON
    )
    assert lower[0] <= ratio * (1 + 1e-12)
    assert upper[0] >= ratio * (1 - 1e-12)


@pytest.mark.parametrize(
    ("now", "before"),
    [([np.nan, 1.0], [1.0, 1.0]), ([1.0, 1.0], [np.inf, 1.0]), ([], []), ([np.inf], [np.inf])],
)
def test_there_is_no_ratio_of_what_is_not_finite(now: Any, before: Any) -> None:
    one, other = np.array(now, dtype=np.float64), np.array(before, dtype=np.float64)
    assert np.isnan(update_ratio(one, other, EPSILON))
    if one.size:
        lower, upper = ratio_bounds(
            tensor_statistics(one)[None, :], tensor_statistics(other)[None, :], EPSILON
        )
        assert np.isnan([lower[0], upper[0]]).all()


def test_long_tensors_of_any_type() -> None:
    size = (1 << 20) + 5
    before = np.ones(size, dtype=np.float16)
    assert update_ratio(before * np.float16(2), before, EPSILON) == pytest.approx(0.5)
    whole = np.arange(10)
    assert update_ratio(whole + 1, whole, 0) == pytest.approx(1 / 5.5)


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\) differ"):
        update_ratio(np.zeros(2), np.zeros(1), EPSILON)
