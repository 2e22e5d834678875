"""A worker that does not go on holds the others up for a while, and not for ever."""

from __future__ import annotations

import pytest

from rule_runtime.engine.outcome import Evidence, IssueFound, Outcome, Passed, RuleStatus
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.engine.followed_run import FollowedRun

PATIENCE = Patience(seconds=60.0, steps=3)


def two_workers(**changes: object) -> FollowedRun:
    run = FollowedRun(num_workers=2, patience=PATIENCE, **changes)
    run.look(run.write(0, worker=0) + run.write(0, worker=1))
    assert run.fed == [0]
    return run


def test_a_silent_worker_is_given_up_after_the_wait_and_that_is_recorded() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1059.9)
    assert run.fed == [0]
    run.look(now=1060.0)
    assert run.fed == [0, 1, 2, 3, 4]
    assert run.state.counts.given_up == 1
    assert "worker_1" in run.state.counts.last_problem
    assert "step 1" in run.state.counts.last_problem
    run.look(run.write(5), now=1061.0)
    assert run.fed[-1] == 5  # it stays given up
    assert run.state.counts.given_up == 1


def test_too_few_steps_wait_six_times_as_long() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3))  # two later steps
    run.look(now=1359.9)
    assert run.fed == [0]
    run.look(now=1360.0)
    assert run.fed == [0, 1, 2, 3]


def test_without_a_time_nobody_is_given_up() -> None:
    run = two_workers(now=None)
    run.look(run.write(*range(1, 200)))
    run.look()
    assert run.fed == [0]
    assert run.state.progress.waiting is None


def test_the_wait_begins_with_the_step_that_waits() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4, 5))
    run.look(run.write(1, worker=1), now=1059.0)
    assert run.fed == [0, 1]
    run.look(now=1118.0)
    assert run.fed == [0, 1]
    run.look(now=1119.0)
    assert run.fed == [0, 1, 2, 3, 4, 5]


def test_a_worker_that_writes_again_is_waited_for_again() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1060.0)
    run.look(run.write(3, worker=1), now=1061.0)  # late
    run.look(run.write(5), now=1062.0)
    assert run.fed == [0, 1, 2, 3, 4]
    run.look(run.write(5, worker=1), now=1063.0)
    assert run.writers[5] == [0, 1]
    assert run.writers[3] == [0]
    assert run.state.progress.late == 1


def test_late_files_are_judged_by_a_replay_at_the_end() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1060.0)
    run.look(run.write(1, 2, 4, worker=1), now=1061.0)
    run.look(ended=True)
    assert run.writers == {0: [0, 1], 1: [0, 1], 2: [0, 1], 3: [0], 4: [0, 1]}
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND


@pytest.mark.parametrize("last", [{}, {"worker_0": 5, "worker_1": 4}])
def test_late_files_of_which_no_event_tells_are_judged_at_the_end(last: dict[str, int]) -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1060.0)
    run.write(1, 2, 4, worker=1)
    run.look(ended=True, last_sequences=last)
    assert run.writers == {0: [0, 1], 1: [0, 1], 2: [0, 1], 3: [0], 4: [0, 1]}
    assert run.state.counts.missing == 0


@pytest.mark.parametrize("num_workers", [2, 3])
def test_a_worker_that_never_came_back_costs_a_listing_and_no_replay(num_workers: int) -> None:
    run = FollowedRun(num_workers=num_workers, patience=PATIENCE)
    run.look(run.write(0, 1, 2, worker=0) + run.write(0, 1, worker=1))
    run.look(run.write(3, 4, 5, 6))
    run.look(now=1060.0)
    run.look(now=1420.0)
    assert run.fed == list(range(7))
    assert run.state.counts.given_up == num_workers - 1
    run.look(ended=True, last_sequences={"worker_0": 7})
    assert run.store.gets() == []
    assert len(run.store.listed) == 1
    assert run.state.status is RuleStatus.NO_ISSUES_FOUND


def test_before_a_worker_is_given_up_its_lost_files_are_looked_for() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    run.write(1, 2, worker=1)  # their events are lost
    run.look(now=1060.0)
    assert run.writers == {0: [0, 1], 1: [0, 1], 2: [0, 1]}
    assert run.state.counts.given_up == 0
    run.look(now=1120.0)
    assert run.fed == [0, 1, 2]  # the wait of step 3 began at 1060, with one later step
    run.look(now=1420.0)
    assert run.fed == [0, 1, 2, 3, 4]
    assert run.state.counts.given_up == 1


def test_a_worker_of_which_nothing_was_seen_is_given_up() -> None:
    run = FollowedRun(num_workers=3, patience=PATIENCE)
    run.look(run.write(0, 1, 2, 3, worker=1))
    run.look(now=1060.0)
    assert run.fed == [0, 1, 2, 3]
    assert run.state.counts.given_up == 2
    assert "workers without any file" in run.state.counts.last_problem
    run.look(run.write(4, worker=1), now=1061.0)
    assert run.fed[-1] == 4
    assert len(run.store.listed) == 0
    run.look(run.write(4, worker=0), now=1062.0)
    assert run.state.progress.late == 1


def test_a_number_of_workers_that_nothing_tells_is_not_waited_for_for_ever() -> None:
    run = FollowedRun(run=None, patience=PATIENCE)
    run.look(run.write(0, 1, 2, 3))
    assert run.fed == []
    run.look(now=1060.0)
    assert run.fed == [0, 1, 2, 3]
    assert "workers without any file" in run.state.counts.last_problem


def test_a_hole_that_nothing_fills_is_not_waited_for_for_ever() -> None:
    run = FollowedRun(patience=PATIENCE)
    run.look(run.write(0))
    (lost,) = run.write(1)
    content = run.hide(lost)
    run.look(run.write(2, 3, 4, 5))
    run.look(now=1060.0)
    assert run.fed == [0, 2, 3, 4, 5]
    assert run.state.counts.given_up == 1
    for step in (6, 7):
        run.look(run.write(step), now=1061.0)
        assert run.fed[-1] == step  # the worker is alive, and is waited for as before
    assert len(run.store.listed) == 0
    (second,) = run.write(8)
    other = run.hide(second)
    run.look(run.write(9), now=1062.0)
    assert run.fed[-1] == 7
    run.store.put(second, other)
    run.look([second], now=1063.0)
    assert run.fed[-2:] == [8, 9]
    run.store.put(lost, content)
    run.look(ended=True, last_sequences={"worker_0": 10})
    assert run.fed == list(range(10))
    assert run.state.counts.missing == 0


def test_workers_of_the_original_client_are_given_up_too() -> None:
    run = FollowedRun(num_workers=2, run=None, patience=PATIENCE)
    run.trial.collections()
    run.look(run.write(0, worker=0) + run.write(0, worker=1))
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1060.0)
    assert run.fed == [0, 1, 2, 3, 4]
    assert run.state.counts.given_up == 1
    run.look(run.write(2, 5, worker=1), now=1061.0)
    run.look(run.write(6, worker=0), now=1062.0)
    assert run.fed[-1] == 5
    run.look(ended=True)
    assert run.writers[2] == [0, 1]


def test_what_does_not_fit_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rule_runtime.engine.progress.MAX_PENDING", 3)
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4, 5, 6, 7))
    run.look(now=1060.0)
    assert run.fed == list(range(8))


class Gap(Rule):
    """Finds steps that a worker did not write; what was late is a gap no more."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["steps"] = [*memory.get("steps", []), [step.step, []]]
        if step.is_complete:
            return Passed()
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=step.workers[0],
                tensor="a",
                measure="workers",
                value=float(len(step.workers)),
                threshold=2.0,
                sentence="a worker is missing",
                remedy="none",
            )
        )


def test_a_finding_stays_whatever_the_replay_says() -> None:
    run = two_workers(now=1000.0, rule=Gap())
    run.look(run.write(1, 2, 3, 4))
    run.look(now=1060.0)
    found = run.state.evidence
    assert found is not None
    assert (found.step, run.state.status) == (1, RuleStatus.ISSUES_FOUND)
    run.look(run.write(1, 2, 3, 4, worker=1))
    while not run.state.ended:
        run.look(ended=True, may_go_on=lambda: False)
        assert run.state.status is RuleStatus.ISSUES_FOUND
        assert run.state.evidence == found
    assert run.state.transition == 2


def test_waiting_writes_no_new_state_as_time_goes_by() -> None:
    run = two_workers(now=1000.0)
    run.look(run.write(1, 2, 3, 4))
    before = run.state
    for now in (1001.0, 1030.0, 1059.0):
        run.look(now=now, check_again=True)
        assert run.state == before


def test_looking_again_finds_a_file_that_no_hole_tells_of() -> None:
    run = FollowedRun()
    run.look(run.write(0))
    run.write(1)
    run.look()
    assert run.fed == [0]
    run.look(check_again=True)
    assert run.fed == [0, 1]
    assert len(run.store.listed) == 1


def test_looking_again_reads_other_runs_files_to_a_bound_and_leaves_no_trace() -> None:
    run = FollowedRun()
    old = TrialBuilder(run.store, run="01")
    for step in range(600):
        old.step(step, {"a": [1.0]})
    run.look(run.write(0))
    before = run.state
    run.look(check_again=True)
    assert len(run.store.gets()) == 256
    assert run.state == before
    run.write(100)
    run.look(check_again=True)
    assert run.fed == [0, 100]
