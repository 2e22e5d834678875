"""What is known of a worker's files, kept as ranges, is what a set of numbers would tell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.run_progress import WorkerProgress
from rule_runtime.engine.worker_track import WorkerTrack

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "give up", "keep"]),
              st.integers(1, 25), st.integers(0, 3))
)  # fmt: skip


@settings(deadline=None)
@given(ACTIONS)
def test_ranges_tell_what_a_set_would(actions: list[tuple[str, int, int]]) -> None:
    track, seen, excused = WorkerTrack(), set[int](), 0
    for action, number, most in actions:
        if action == "add" and number not in seen:
            skipped = min(most, number - 1)
            track.add(number, skipped)
            seen |= set(range(number - skipped, number + 1))
        elif action == "remove":
            track.remove(number)
            excused = min(excused, number - 1) if number in seen else excused
            seen.discard(number)
        elif action == "give up":
            track.give_up(step=0)
            excused = max(excused, *seen, 0)
        elif action == "keep":
            data = track.to_progress().to_json()
            track = WorkerTrack(WorkerProgress.from_json(data))
        assert {n for low, high in track.seen for n in range(low, high + 1)} == seen
        assert track.excused == excused
        assert track.complete_to == reach(seen, 0)
        assert track.contiguous == reach(seen, excused)
        assert track.has_hole == (reach(seen, excused) < max(seen, default=0))


def reach(seen: set[int], begin: int) -> int:
    """Return the last number before which, from `begin` on, none is missing."""
    while begin + 1 in seen:
        begin += 1
    return begin


def test_of_too_many_holes_the_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rule_runtime.engine.worker_track.MAX_RANGES", 3)
    track = WorkerTrack()
    for number in range(1, 20, 2):
        track.add(number)
    assert track.to_progress().seen == ((1, 1), (3, 3), (5, 5))  # they may still come
    track.give_up(step=100)
    kept = track.to_progress()
    assert kept.seen == ((1, 15), (17, 17), (19, 19))
    assert kept.lost == 7
    assert kept.excused == 19
    track = WorkerTrack(kept)
    track.add(20)
    assert track.contiguous == 20
