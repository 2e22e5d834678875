from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from hook_layer.format.paths import index_key
from hook_layer.storage.base import StorageError
from rule_runtime.engine import progress
from rule_runtime.engine.outcome import RuleStatus, status_details
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.engine.followed_run import FollowedRun


class FailingStore(CountingStore):
    is_broken = False

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if self.is_broken:
            raise StorageError("the storage is away")
        return super().get(key, start, length)


Follower = partial(FollowedRun, now=None)


def test_files_in_order_cost_no_call_at_all() -> None:
    run = Follower()
    for step in (0, 5, 10):
        assert run.look(run.write(step)) == []
    assert run.fed == [0, 5, 10]
    assert run.state.status is RuleStatus.IN_PROGRESS
    assert (run.state.transition, run.state.announced_transition) == (1, 0)


def test_a_lost_event_costs_one_listing_and_one_read() -> None:
    run = Follower()
    run.look(run.write(0))
    (lost,) = run.write(5)
    calls = run.look(run.write(10))
    assert calls == ["LIST index/", f"GET {lost}"]
    assert run.fed == [0, 5, 10]


def test_a_hole_that_a_listing_cannot_fill_is_not_looked_for_again() -> None:
    run = Follower()
    run.look(run.write(0))
    (hidden,) = run.write(5)
    data = run.store.get(hidden)
    run.store.delete(hidden)
    assert run.look(run.write(10)) == ["LIST index/"]
    assert run.look(run.trial.keys[-1:]) == []  # the same file once more
    assert run.look(run.write(15)) == []  # and one more that leaves no further hole
    assert run.fed == [0]
    run.store.put(hidden, data)
    run.look([hidden])
    assert run.fed == [0, 5, 10, 15]


def test_a_step_waits_until_every_worker_has_passed_it() -> None:
    run = Follower(num_workers=2)
    run.look(run.write(0, worker=0))
    assert run.fed == []
    run.look(run.write(0, 4, worker=1))
    assert run.fed == [0]
    # Worker 0 continues to step 8 without having saved step 4, so step 4 lacks nothing.
    assert run.look(run.write(8, worker=0)) == [f"GET {index_key(4, 'worker_1')}"]
    assert run.fed == [0, 4]
    run.look([], ended=True)
    assert run.fed == [0, 4, 8]


def test_names_that_are_not_known_are_looked_for_by_a_listing() -> None:
    run = Follower(num_workers=2)
    run.write(0, worker=1)  # its event is lost
    calls = run.look(run.write(0, worker=0))
    assert calls[0] == "LIST index/"
    assert run.fed == [0]


def test_files_of_the_original_client_are_followed_by_listings() -> None:
    run = Follower(run=None, num_workers=2)
    keys = run.write(0, 5, worker=0) + run.write(0, worker=1)
    run.look(keys[:1])
    assert run.fed == []  # nothing says yet how many workers write
    run.trial.collections()
    run.look(keys[:1])
    assert run.fed == [0]
    run.look(run.write(10, worker=1))
    assert run.fed == [0, 5]
    run.look([], ended=True)
    assert run.fed == [0, 5, 10]
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND


def test_files_of_another_run_in_the_folder_are_ignored() -> None:
    store = CountingStore()
    old = TrialBuilder(store, run="01-old")
    for step in (0, 5, 10, 15, 20):
        old.step(step, {"gradient/a": [0.0]})
    run = Follower(rule=VanishingGradient(), run="02-new", store=store)
    run.look(run.write(0))
    run.look([*old.keys[2:], *run.write(5, 10)])
    run.look(run.write(15)[:0], ended=True)
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND
    assert run.state.counts.evaluated == 4
    again = Reconciler(store, VanishingGradient(), "01-old")
    assert again.advance(EvaluationState.initial(), (), ended=True).evidence is not None


def test_the_end_costs_one_listing_and_is_idempotent() -> None:
    run = Follower()
    run.look(run.write(0))
    (left,) = run.write(5)
    assert run.look([], ended=True) == ["LIST index/", f"GET {left}"]
    final = run.state
    assert (final.status, final.transition, final.ended) == (RuleStatus.NO_ISSUES_FOUND, 2, True)
    assert run.look([left], ended=True) == []
    assert run.look([left]) == []
    assert run.state == final


def test_a_run_without_any_file_ends_as_error() -> None:
    run = Follower()
    run.look([], ended=True)
    assert run.state.status is RuleStatus.ERROR
    assert "no step of this run was saved" in status_details("X", run.state)


def test_a_late_file_may_add_a_finding_and_never_withdraws_one() -> None:
    run = Follower(rule=ExplodingTensor())
    (key,) = run.write(0)
    run.look([key], ended=True)
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND
    late = run.trial.step(3, {"gradient/a": [np.nan]})
    run.look([late], ended=True)
    assert run.state.status is RuleStatus.ISSUES_FOUND
    assert run.state.transition == 3
    for name in (key, late):
        run.store.delete(name)
    healthy = run.trial.step(1, {"gradient/a": [1.0]})
    run.look([healthy], ended=True)
    assert run.state.status is RuleStatus.ISSUES_FOUND
    assert run.state.evidence is not None
    assert run.state.transition == 3


def test_more_waiting_files_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MAX_PENDING", 10)
    run = Follower(num_workers=2)
    run.look(run.write(0, worker=0) + run.write(0, worker=1))
    sizes = []
    for step in range(1, 60):
        run.look(run.write(step, worker=0))
        sizes.append(len(json.dumps(run.state.to_json()["progress"])))
    assert max(sizes[20:]) <= max(sizes[:20]) + 20
    assert run.store.calls == []
    for step in range(1, 60):
        run.look(run.write(step, worker=1))
    assert run.fed == list(range(60))


def test_more_waiting_files_of_the_original_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "MAX_PENDING", 10)
    run = Follower(num_workers=2, run=None)
    run.trial.collections()
    run.look(run.write(0, worker=0) + run.write(0, worker=1))
    for worker in (0, 1):
        for step in range(1, 60):
            run.look(run.write(step, worker=worker))
            waiting = [len(track.pending) for track in run.state.progress.workers.values()]
            assert sum(waiting) <= 10
    run.look([], ended=True)
    assert run.fed == list(range(60))
    assert run.state.counts.evaluated == 60


def test_an_unreadable_file_is_reported_and_does_not_hold_up_the_run() -> None:
    run = Follower()
    run.look(run.write(0))
    (broken,) = run.write(5)
    run.store.put(broken, b"\xff{")
    run.look([broken])
    run.look(run.write(10))
    assert run.fed == [0, 10]
    run.look([broken, broken], ended=True)
    counts = run.state.counts
    assert (counts.unreadable, counts.evaluated) == (1, 2)
    assert broken in counts.last_problem
    assert "1 file unreadable" in status_details("X", run.state)


def test_a_failing_storage_is_passed_on_and_changes_nothing() -> None:
    store = FailingStore()
    run = Follower(rule=ExplodingTensor(), run=None, store=store)
    run.trial.collections()
    keys = run.write(0)
    files = load_step_files(store, keys)
    store.is_broken = True
    with pytest.raises(StorageError):
        Reconciler(store, run.rule, None).advance(run.state, files)
    store.is_broken = False
    run.look(keys)
    assert run.state.counts.evaluated == 1
