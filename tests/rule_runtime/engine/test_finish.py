"""What the end of a run costs: which files are listed and read once the end marker was seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.paths import index_key
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.engine.followed_run import FollowedRun

LEFT_OVER = 300
TENSORS = {"gradient/a": [1.0]}


class SecondRun(FollowedRun):
    """A run in a folder full of an earlier run's files."""

    def __init__(self, *, num_workers: int = 1, left_over: int = LEFT_OVER) -> None:
        super().__init__(num_workers, now=None)
        first = TrialBuilder(self.store, run="01")
        for step in range(left_over):
            first.step(step, TENSORS)

    def end(self, keys: Sequence[str] = (), **last: int) -> None:
        self.look(keys, ended=True, last_sequences=last or None)


def test_the_end_costs_no_request_when_all_files_were_seen() -> None:
    run = SecondRun()
    run.look(run.write(0, 1, 2, 3))
    run.end(run.write(4), worker_0=5)
    assert (run.store.gets(), len(run.store.listed)) == ([], 0)
    assert run.fed == [0, 1, 2, 3, 4]
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND
    assert run.state.ended


def test_a_missing_file_is_read_and_then_no_other() -> None:
    run = SecondRun()
    run.look(run.write(0, 1, 2))
    run.write(3, 4)
    run.end(worker_0=5)
    assert run.store.gets() == [index_key(3, "worker_0"), index_key(4, "worker_0")]
    assert run.store.num_listed < LEFT_OVER / 2
    assert run.fed == [0, 1, 2, 3, 4]


def test_a_run_of_which_nothing_was_seen_is_read_up_to_its_last_file() -> None:
    run = SecondRun()
    run.write(*range(0, 100, 5))
    run.trial.collections()
    run.end(worker_0=20)
    assert run.fed == list(range(0, 100, 5))
    assert len(run.store.gets()) <= 2 * 96  # its last step is 95


def test_what_lies_behind_the_last_file_is_of_no_interest_even_if_one_is_lost() -> None:
    run = SecondRun()
    run.look(run.write(0))
    (lost,) = run.write(5)
    run.store.delete(lost)
    run.look(run.write(10))
    run.end(worker_0=3)
    assert run.fed == [0, 10]
    assert max(run.store.gets(), default="") <= index_key(10, "worker_0")
    assert run.store.num_listed <= 20


def test_workers_that_wrote_at_other_steps_are_fed_without_a_listing() -> None:
    run = SecondRun(num_workers=2)
    run.look(run.write(0, 2, worker=0))
    run.look(run.write(0, 4, 6, worker=1))
    run.end(worker_0=2, worker_1=3)
    assert len(run.store.listed) == 0
    assert set(run.store.gets()) <= {index_key(step, "worker_1") for step in (4, 6)}
    assert run.fed == [0, 2, 4, 6]


def test_of_a_worker_that_the_marker_does_not_name_everything_is_looked_for() -> None:
    run = SecondRun(num_workers=2)
    run.look(run.write(0, 1, worker=0) + run.write(0, worker=1))
    run.write(250, worker=1)
    run.end(worker_0=2)
    assert run.fed == [0, 1, 250]
    # The left-over files are those of worker_0, which was seen completely; step 1 had waited.
    assert sorted(run.store.gets()) == [index_key(1, "worker_0"), index_key(250, "worker_1")]


def test_a_file_of_a_worker_that_nobody_knows_of_is_found() -> None:
    run = SecondRun(num_workers=3, left_over=0)
    run.look(run.write(0, worker=0))
    run.write(0, worker=1)
    run.write(3, worker=2)
    run.end(worker_0=1)
    assert run.fed == [0, 3]


@pytest.mark.parametrize("num_workers", [1, None])
def test_a_run_without_any_step(num_workers: int | None) -> None:
    run = SecondRun()
    if num_workers:
        run.trial.collections()
    run.end(worker_0=0)
    assert run.state.status is RuleStatus.ERROR
    assert len(run.store.gets()) <= (1 if num_workers else LEFT_OVER)


def test_without_sequences_everything_is_read() -> None:
    run = SecondRun(left_over=20)
    run.look(run.write(0, 1))
    run.end()
    assert len(run.store.gets()) == 18


def test_a_late_file_is_replayed_and_only_the_own_steps_are_read() -> None:
    run = SecondRun(num_workers=2)
    run.look(run.write(0, worker=0))
    run.look(run.write(0, worker=1))
    (late,) = run.write(1, worker=1)
    data = run.store.get(late)
    run.store.delete(late)
    run.end(run.write(1, 2, worker=0) + run.write(2, worker=1), worker_0=3, worker_1=3)
    assert run.fed == [0, 1, 2]
    run.store.put(late, data)
    run.end([late], worker_0=3, worker_1=3)
    assert run.writers[1] == [0, 1]
    assert max(run.store.gets()) < index_key(3, "!")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_marker_changes_the_cost_and_not_the_verdict(data: st.DataObject) -> None:
    num_workers = data.draw(st.integers(1, 3))
    run = SecondRun(num_workers=num_workers, left_over=data.draw(st.integers(0, 12)))
    steps = st.lists(st.integers(0, 12), unique=True, max_size=6).map(sorted)
    keys = [key for w in range(num_workers) for key in run.write(*data.draw(steps), worker=w)]
    seen = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    run.look(seen)
    before = run.state
    run.end()
    plain = run.state
    for named in range(num_workers + 1):
        run.state = before
        names = [f"worker_{w}" for w in range(named)]
        run.end(**{name: run.trial.sequence(name) for name in names})
        assert run.state.memory == plain.memory
        assert run.state.status is plain.status
        assert run.state.counts == plain.counts
