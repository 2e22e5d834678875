"""Oracle: each value looked at by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.binning import bin_edges, mean_by_bin

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(numbers, numbers), max_size=30), st.integers(1, 12))
def test_means_are_those_of_the_values_in_the_bin(
    pairs: list[tuple[float, float]], num_bins: int
) -> None:
    positions = [position for position, _ in pairs]
    edges = bin_edges(positions, num_bins)
    assert len(edges) == num_bins + 1
    assert (np.diff(edges) > 0).all()
    means = mean_by_bin([value for _, value in pairs], positions, edges)
    for at in range(num_bins):
        is_last = at == num_bins - 1
        inside = [
            value
            for position, value in pairs
            if edges[at] <= position < edges[at + 1] or (is_last and position == edges[-1])
        ]
        expected = sum(inside) / len(inside) if inside else math.nan
        assert means[at] == pytest.approx(expected, abs=1e-6, nan_ok=True)


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(1, 12))
def test_every_value_is_in_a_bin(values: list[float], num_bins: int) -> None:
    counts, _ = np.histogram(values, bin_edges(values, num_bins))
    assert counts.sum() == len(values)


def test_bins_of_one_number_and_of_none() -> None:
    np.testing.assert_allclose(bin_edges([4.0, 4.0], 2), [2, 4, 6])
    np.testing.assert_allclose(bin_edges([0.0], 2), [-0.5, 0, 0.5])
    np.testing.assert_allclose(bin_edges([], 2), [0, 0.5, 1])


@pytest.mark.parametrize(("values", "num_bins"), [([1.0], 0), ([math.nan], 2), ([math.inf], 2)])
def test_what_has_no_bins_is_refused(values: list[float], num_bins: int) -> None:
    with pytest.raises(ValueError, match="leave out what is not finite"):
        bin_edges(values, num_bins)
