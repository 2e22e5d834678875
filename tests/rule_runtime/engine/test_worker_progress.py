"""A worker's files as ranges of numbers give the same answers as a set of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.progress import WorkerProgress

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "give up", "keep"]),
              st.integers(1, 25), st.integers(0, 3))
)  # fmt: skip


@settings(deadline=None)
@given(ACTIONS)
def test_ranges_answer_as_a_set_would(actions: list[tuple[str, int, int]]) -> None:
    worker, seen, excused = WorkerProgress(), set[int](), 0
    for action, number, most in actions:
        if action == "add" and number not in seen:
            skipped = min(most, number - 1)
            worker.add(number, skipped)
            seen |= set(range(number - skipped, number + 1))
        elif action == "remove":
            worker.remove(number)
            excused = min(excused, number - 1) if number in seen else excused
            seen.discard(number)
        elif action == "give up":
            worker.give_up(step=0)
            excused = max(excused, *seen, 0)
        elif action == "keep":
            worker = WorkerProgress.from_json(worker.copy().to_json())
        assert {n for low, high in worker.seen for n in range(low, high + 1)} == seen
        assert worker.excused == excused
        assert worker.complete_to == reach(seen, 0)
        assert worker.contiguous == reach(seen, excused)
        assert worker.has_hole == (reach(seen, excused) < max(seen, default=0))


def reach(seen: set[int], begin: int) -> int:
    """Return the last number before which, from `begin` on, none is missing."""
    while begin + 1 in seen:
        begin += 1
    return begin


def test_of_too_many_holes_the_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rule_runtime.engine.progress.MAX_RANGES", 3)
    worker = WorkerProgress()
    for number in range(1, 20, 2):
        worker.add(number)
    assert worker.copy().seen == [(1, 1), (3, 3), (5, 5)]  # they may still come
    worker.give_up(step=100)
    kept = worker.copy()
    assert kept.seen == [(1, 15), (17, 17), (19, 19)]
    assert kept.lost == 7
    assert kept.excused == 19
    kept.add(20)
    assert kept.contiguous == 20
