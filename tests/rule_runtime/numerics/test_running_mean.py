"""Oracle: the mean of all values at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.running_mean import RunningMean, add_to_mean

batches = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), min_size=1, max_size=8)


@given(batches)
def test_the_mean_is_that_of_all_values(batches: list[list[float]]) -> None:
    mean: RunningMean = [0.0, 0]
    for values in batches:
        add_to_mean(mean, float(np.mean(values)), len(values))
    everything = np.concatenate(batches)
    assert mean[1] == len(everything)
    assert mean[0] == pytest.approx(float(everything.mean()), abs=1e-6)


def test_large_values_do_not_overflow() -> None:
    mean: RunningMean = [0.0, 0]
    for _ in range(10):
        add_to_mean(mean, 1e308)
    assert mean == [pytest.approx(1e308), 10]
