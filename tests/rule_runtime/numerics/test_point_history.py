from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.point_history import MAX_NUMBERS, MAX_POINTS, PointHistory

names = st.tuples(st.sampled_from(["w0", "w1"]), st.sampled_from("abc"))
numbers = st.dictionaries(names, st.floats(allow_nan=False), min_size=1)


@given(st.lists(numbers, max_size=12), st.integers(0, 12))
def test_points_come_back_through_json(rows: list[dict[tuple[str, str], float]], drop: int) -> None:
    history = PointHistory({})
    for step, row in enumerate(rows):
        history = PointHistory(json.loads(json.dumps(history.to_json())))
        history.append(step, 10**17 + step, row)
    history.drop_before(min(drop, len(rows)))
    kept = rows[drop:]
    assert [history.at(at) for at in range(len(history))] == kept
    assert history.steps[:, 1].tolist() == [10**17 + drop + at for at in range(len(kept))]
    assert len(history.to_json()["series"]) == len({name for row in kept for name in row})


def test_what_is_kept_is_bounded_and_spread_over_all_steps() -> None:
    history = PointHistory({})
    for step in range(10_000):
        history.append(step, step, {("w", "loss"): float(step)})
        assert len(history) <= MAX_POINTS
        assert history.steps[0, 0] == 0
        assert history.steps[-1, 0] == step
    steps = history.steps[:, 0].tolist()
    assert steps == sorted(set(steps))
    assert history.at(len(history) - 1) == {("w", "loss"): 9999.0}
    assert len(json.dumps(history.to_json())) < 5_000


def test_ever_new_names_and_very_many_of_them_are_bounded_too() -> None:
    history = PointHistory({})
    for step in range(300):
        history.append(step, step, {("w", f"{step}-{at}"): 1.0 for at in range(50)})
    assert len(history) * len(history.to_json()["series"]) <= MAX_NUMBERS
    for step in range(300, 310):
        history.append(step, step, {("w", f"{at}"): 1.0 for at in range(10_000)})
    assert len(history) == 2
