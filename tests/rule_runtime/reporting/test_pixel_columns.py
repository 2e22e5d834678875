"""No spike and no bad number is lost when a curve is reduced to the columns of a picture."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.reporting.pixel_columns import Points, extreme_places, pixel_columns

NUMBERS = st.lists(st.floats(width=32), min_size=1, max_size=300)
RANGES = st.tuples(st.integers(0, 400), st.integers(0, 400)).map(sorted)


@given(NUMBERS, st.integers(1, 100), RANGES)
def test_extremes_and_bad_numbers_stay_at_every_zoom(
    values: list[float], width: int, shown: list[int]
) -> None:
    numbers = np.array(values)
    bad = ~np.isfinite(numbers)
    numbers[bad] = np.nan
    steps = np.cumsum(np.arange(len(values)) % 3 + 1)
    points = Points(steps, numbers, numbers, bad)
    near = points.between(*shown)
    inside = near.steps[(near.steps >= shown[0]) & (near.steps <= shown[1])]
    assert set(steps[(steps >= shown[0]) & (steps <= shown[1])]) == set(inside)
    columns = pixel_columns(points, width, *shown)
    outside = set(near.steps) - set(inside)
    assert set(columns.steps) - set(inside) == outside, "neighbours are points of their own"
    assert len(columns.steps) <= width + len(outside)
    assert (np.diff(columns.steps) > 0).all()
    assert columns.bad.any() == near.bad.any()
    if not near.bad.all():
        assert np.nanmin(columns.low) == np.nanmin(near.low)
        assert np.nanmax(columns.high) == np.nanmax(near.high)


@given(NUMBERS, st.integers(1, 100))
def test_the_report_draws_the_extremes(values: list[float], width: int) -> None:
    numbers = np.where(np.isfinite(values), values, np.nan)
    places = extreme_places(np.arange(len(values)), numbers, width)
    assert places == sorted(set(places))
    assert {0, len(values) - 1} <= set(places)
    assert len(places) <= max(3 * width, 2 * width) + 2
    assert np.isnan(numbers[places]).any() == np.isnan(numbers).any()
    if not np.isnan(numbers).all():
        assert np.nanmax(numbers[places]) == np.nanmax(numbers)
        assert np.nanmin(numbers[places]) == np.nanmin(numbers)
