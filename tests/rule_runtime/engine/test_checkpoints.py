"""A look for which there is too little time leaves the rest to the next one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.outcome import Outcome, Passed, RuleStatus
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.engine.followed_run import FollowedRun


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run_feed", "lost_files", "run_end"):
        monkeypatch.setattr(f"rule_runtime.engine.{name}.FILES_AT_ONCE", 4)


def test_steps_that_are_ready_are_fed_one_by_one() -> None:
    run = FollowedRun()
    assert run.look_in_parts(run.write(*range(6))) == 6
    assert run.fed == list(range(6))
    assert not run.has_more


def test_without_a_limit_nothing_is_left() -> None:
    run = FollowedRun()
    run.look(run.write(*range(6)))
    assert not run.has_more
    run.look(may_go_on=lambda: True, ended=True)
    assert not run.has_more
    assert run.state.ended


def test_lost_files_are_listed_and_read_in_parts() -> None:
    run = FollowedRun()
    run.look(run.write(0))
    keys = run.write(*range(1, 20))
    run.look(keys[-1:], may_go_on=lambda: False)
    assert run.has_more
    assert len(run.store.gets()) == 4
    assert run.look_in_parts() > 10
    assert run.fed == list(range(20))


def test_other_runs_files_are_passed_in_parts() -> None:
    run = FollowedRun()
    run.look(run.write(0))
    old = TrialBuilder(run.store, run="01")
    for step in range(1, 50):
        old.step(step, {"a": [1.0]})
    keys = run.write(60, 70)
    run.look_in_parts(keys[-1:])
    assert run.fed == [0, 60, 70]
    old.step(80, {"a": [1.0]})
    run.write(90)
    assert run.look_in_parts(ended=True) > 1
    assert run.fed == [0, 60, 70, 90]
    assert run.state.ended


def test_the_verdict_is_drawn_when_all_is_done() -> None:
    run = FollowedRun()
    run.write(*range(20))
    run.look(ended=True, last_sequences={"worker_0": 20}, may_go_on=lambda: False)
    assert run.has_more
    assert (run.state.ended, run.state.status) == (False, RuleStatus.IN_PROGRESS)
    run.look_in_parts()
    assert run.fed == list(range(20))
    assert (run.state.ended, run.state.status) == (True, RuleStatus.NO_ISSUES_FOUND)
    assert run.state.counts.missing == 0
    assert run.state.progress.finishing is None


def test_what_the_end_marker_said_is_kept_until_the_verdict() -> None:
    run = FollowedRun()
    run.write(*range(6))
    run.look_in_parts(ended=True, last_sequences={"worker_0": 9})
    assert run.state.counts.missing == 3


def test_files_that_come_in_the_middle_of_the_end_are_fed() -> None:
    run = FollowedRun()
    keys = run.write(0, 1, 2, 3, 5, 6, 7)
    old = TrialBuilder(run.store, run="01")
    for step in range(10, 40):
        old.step(step, {"a": [1.0]})
    run.look(keys, ended=True, may_go_on=lambda: False)
    while run.state.progress.fed_step < 7 or not (run.state.progress.finishing or 0):
        run.look(may_go_on=lambda: False)
    run.look(may_go_on=lambda: False)
    assert not run.state.ended
    run.look_in_parts(run.write(9))
    assert run.fed == [0, 1, 2, 3, 5, 6, 7, 9]


def late_run(*, run: str | None = "02") -> FollowedRun:
    """A run whose worker 1 was given up, and wrote nevertheless."""
    followed = FollowedRun(num_workers=2, run=run, patience=Patience(60.0, 3))
    followed.trial.collections()
    followed.look(followed.write(*range(10)))
    followed.look(now=1060.0)
    assert followed.fed == list(range(10))
    followed.look(followed.write(*range(9), worker=1))
    return followed


@pytest.mark.parametrize("run", ["02", None])
def test_a_replay_continues_where_it_was(run: str | None) -> None:
    followed = late_run(run=run)
    assert followed.look_in_parts(ended=True) >= 10
    assert followed.writers == {step: [0, 1] if step < 9 else [0] for step in range(10)}
    assert followed.state.counts.evaluated == 10
    assert followed.state.ended


def test_a_file_that_comes_during_a_replay_is_judged_by_another() -> None:
    run = late_run()
    (last,) = run.write(9, worker=1)
    content = run.hide(last)
    run.look(ended=True, may_go_on=lambda: False)
    while run.state.progress.replaying is None or len(run.fed) != 5:
        assert not run.state.ended
        run.look(may_go_on=lambda: False)
    run.store.put(last, content)
    new = run.write(10)
    run.look([last, *new], may_go_on=lambda: False)
    run.look_in_parts()
    assert run.writers == {step: [0, 1] if step < 10 else [0] for step in range(11)}


def test_a_run_that_is_finished_once_more_has_not_ended_meanwhile() -> None:
    run = late_run()
    run.look(ended=True)
    assert run.state.ended
    run.look(run.write(9, worker=1), may_go_on=lambda: False)
    assert run.has_more
    assert (run.state.ended, run.state.status) == (False, RuleStatus.NO_ISSUES_FOUND)
    run.look_in_parts()
    assert (run.state.ended, run.state.transition) == (True, 2)
    assert run.writers[9] == [0, 1]


class Broken(Rule):
    """Fails at step 3."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["steps"] = [*memory.get("steps", []), [step.step, []]]
        if step.step == 3:
            raise KeyError("broken")
        return Passed()


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_a_rule_that_fails_ends_the_run_in_whatever_part(*, is_seen: bool, ended: bool) -> None:
    run = FollowedRun(rule=Broken())
    keys = run.write(*range(6))
    run.look_in_parts(keys if is_seen or not ended else (), ended=ended)
    assert run.state.counts.failure
    assert (run.state.ended, run.state.status) == (True, RuleStatus.ERROR)
    assert run.state.counts.evaluated == 3


def test_nothing_is_fed_twice_by_another_look_in_between() -> None:
    run = late_run()
    run.look(ended=True, may_go_on=lambda: False)
    while not run.state.ended:
        run.look(check_again=True, may_go_on=lambda: False)
    assert run.fed == list(range(10))


def test_a_state_in_the_middle_of_the_end_survives_json() -> None:
    run = late_run()
    run.look(ended=True, last_sequences={"worker_0": 10}, may_go_on=lambda: False)
    while not run.state.ended:
        state = EvaluationState.from_json(json.loads(json.dumps(run.state.to_json())))
        assert state == run.state
        run.look(may_go_on=lambda: False)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_parts_come_to_the_result_of_one_look(data: st.DataObject) -> None:
    run_id = data.draw(st.sampled_from(["02", None]))
    num_workers = data.draw(st.integers(1, 3))
    patience = Patience(60.0, 2)
    whole = FollowedRun(num_workers=num_workers, run=run_id, patience=patience)
    parts = FollowedRun(num_workers=num_workers, run=run_id, patience=patience)
    steps = st.lists(st.integers(0, 15), unique=True, max_size=9).map(sorted)
    saved = [data.draw(steps) for _ in range(num_workers)]
    other = data.draw(st.lists(st.integers(0, 30), unique=True, max_size=9))
    for run in (whole, parts):
        if run_id is not None:
            old = TrialBuilder(run.store, run="01")
            for step in other:
                old.step(step, {"a": [1.0]}, worker="worker_9")
        run.trial.collections()
        keys = [key for w, of_w in enumerate(saved) for key in run.write(*of_w, worker=w)]
    first = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    limits = data.draw(st.lists(st.booleans(), max_size=30))
    for now in (1000.0, 1060.0, 1120.0):
        whole.now = parts.now = now
        whole.look(first)
        parts.look_in_parts(first, may_go_on=limited(limits))
        first = []
    whole.look(keys, ended=True)
    parts.look_in_parts(keys, ended=True, may_go_on=limited(limits))
    assert parts.writers == whole.writers
    assert parts.state.counts == whole.state.counts
    assert parts.state.status is whole.state.status
    expected = {step for of_w in saved for step in of_w}
    assert set(parts.writers) == expected
    if not other:
        again = parts.state
        parts.look(ended=True, may_go_on=lambda: False)
        assert parts.state == again or parts.has_more


def limited(limits: list[bool]) -> Callable[[], bool]:
    answers = iter(limits)
    return lambda: next(answers, False)
