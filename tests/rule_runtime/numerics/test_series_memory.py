from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.series_memory import MAX_SERIES, SeriesMemory

NAMES = st.sampled_from([("a", "0"), ("a", "1"), ("b", "0")])
NUMBERS = st.floats(-1e6, 1e6)
POINTS = st.lists(st.dictionaries(NAMES, NUMBERS), max_size=30)


def memory(state: dict[str, Any]) -> SeriesMemory:
    """Return the series of a rule's memory, which went through JSON."""
    stored = json.loads(json.dumps(state))
    state |= stored
    return SeriesMemory(state, "losses", num_first=3, num_latest=5)


@given(POINTS)
def test_it_keeps_the_first_and_the_latest_numbers(points: list[dict]) -> None:
    state, all_numbers = {}, {}
    for point in points:
        assert memory(state).add(point) == sorted(point)
        for names, number in point.items():
            all_numbers.setdefault(names, []).append(number)
        kept = memory(state)
        for names in point:
            series = kept.of(names)
            assert series.first.tolist() == all_numbers[names][:3]
            assert series.latest.tolist() == all_numbers[names][-5:]
            assert series.count == len(all_numbers[names])


def test_its_size_depends_on_the_number_of_series_only() -> None:
    state, sizes = {}, []
    for at in range(1000):
        memory(state).add({("a", "0"): float(at)})
        sizes.append(len(json.dumps(state)))
    assert sizes[-1] - sizes[0] <= len("999")


def test_further_series_are_not_kept() -> None:
    kept = memory({})
    assert len(kept.add({(f"{at:03d}", "0"): 1.0 for at in range(MAX_SERIES + 5)})) == MAX_SERIES
    assert kept.add({("000", "0"): 1.0, ("zzz", "0"): 1.0}) == [("000", "0")]


def test_the_start_is_the_first_number_or_the_median_if_larger() -> None:
    for numbers, start in (([4.0, 9.0, 9.0], 9.0), ([4.0, 1.0, 2.0], 4.0), ([-3.0], 3.0)):
        kept = memory({})
        for number in numbers:
            kept.add({("a", "0"): number})
        assert kept.of(("a", "0")).start == start


def test_the_lowest_level_is_remembered() -> None:
    state = {}
    for number in (9.0, 4.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0):
        memory(state).add({("a", "0"): number})
    series = memory(state).of(("a", "0"))
    assert series.lowest == 5  # the median of 9, 4, 5
    assert series.before(9).first.tolist() == [9.0]
    assert series.before(2).latest.tolist() == [9.0] * 3
