"""Statistics of segments of an array are those of each segment alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hook_layer.capture.statistics import CHUNK, array_statistics, segment_statistics
from hook_layer.format.index import STATISTICS_COLUMNS

SHORT = 8192  # elements: longer segments are computed alone
SIZES = st.one_of(
    st.integers(0, 3), st.integers(4, 200), st.sampled_from([SHORT - 1, SHORT, SHORT + 1])
)
SPECIAL = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e38, -1e38, 1e-44])


def assert_as_alone(segments: list[NDArray[Any]]) -> None:
    found = segment_statistics(np.concatenate(segments), [segment.size for segment in segments])
    expected = np.reshape([array_statistics(each) for each in segments], found.shape)
    columns = dict(zip(STATISTICS_COLUMNS, expected.T, strict=True))
    # Where elements cancel, a mean has fewer digits, and so has the std of a constant.
    slack = {"mean": 1e-7 * columns["abs_mean"], "std": 1e-12 * columns["l2"]}
    for number, (column, values) in enumerate(columns.items()):
        errors = np.abs(found[:, number] - values)
        limits = 1e-5 * np.abs(values) + slack.get(column, 0)
        assert ((errors <= limits) | (np.isnan(found[:, number]) & np.isnan(values))).all(), column


@st.composite
def segments(draw: st.DrawFn) -> list[NDArray[Any]]:
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    dtype = draw(st.sampled_from(["f4", "f4", "f8", "f2", "i4", "?"]))
    found = []
    for size in draw(st.lists(SIZES, min_size=1, max_size=12)):
        center, spread = draw(st.sampled_from([(0, 1), (1000, 1), (0, 1e-200), (1, 0)]))
        values = center + spread * generator.standard_normal(size)
        if dtype.startswith("f"):
            for _ in range(draw(st.integers(0, 2)) if size else 0):
                values[draw(st.integers(0, size - 1))] = draw(SPECIAL)
        with np.errstate(over="ignore"):
            found.append(values.astype(dtype))
    return found


@settings(max_examples=100, deadline=None)
@given(segments())
def test_any_segments_are_as_each_alone(parts: list[NDArray[Any]]) -> None:
    assert_as_alone(parts)


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [0, 0, 3, 0],
        [SHORT + 1],
        [1, SHORT + 1, 1],
        [SHORT] * (CHUNK // SHORT + 2),
        [5000] * (2 * CHUNK // 5000 + 3),
        [CHUNK + 1, 0, 2, CHUNK],
    ],
    ids=str,
)
def test_segments_of_sizes_around_the_limits(sizes: list[int]) -> None:
    numbers = np.random.default_rng(0).standard_normal(sum(sizes)).astype("f4")
    parts = np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else [numbers][:0]
    if parts:
        assert_as_alone(parts)
    else:
        assert segment_statistics(numbers, []).shape == (0, len(STATISTICS_COLUMNS))


def test_squares_that_vanish_or_overflow_in_one_segment_leave_the_others_alone() -> None:
    assert_as_alone([np.array([2.0, 3.0]) * scale for scale in (1, 1e-200, 1, 1e200, 1)])


def test_a_constant_segment_has_no_deviation_and_itself_as_mean() -> None:
    rows = segment_statistics(np.full(31, 0.1), [3, 28])
    for row in rows.tolist():
        found = dict(zip(STATISTICS_COLUMNS, row, strict=True))
        assert (found["min"], found["max"], found["mean"], found["std"]) == (0.1, 0.1, 0.1, 0)


def test_a_segment_of_one_element_has_exactly_its_size() -> None:
    numbers = np.array([0.1, -0.3, 1e-8, 7e-9])
    rows = segment_statistics(numbers, [1] * 4)
    np.testing.assert_array_equal(rows, [array_statistics(number) for number in numbers])


def test_the_array_stays_as_it_is() -> None:
    numbers = np.arange(6.0)
    numbers.flags.writeable = False
    assert segment_statistics(numbers, [2, 4])[:, 3].tolist() == [0, 2]
