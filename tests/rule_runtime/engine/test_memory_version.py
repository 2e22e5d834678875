"""A memory that other code wrote is never read: the run is evaluated again from its beginning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.rules.non_finite import ExplodingTensor
from tests.rule_runtime.engine.followed_run import FollowedRun


def with_memory_of_old_code(run: FollowedRun, version: int = 0) -> None:
    run.state = replace(run.state, memory={"steps": "of another form"}, memory_version=version)


@pytest.mark.parametrize("is_in_parts", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_the_run_is_evaluated_from_its_beginning(*, is_in_parts: bool, ended: bool) -> None:
    run = FollowedRun()
    run.look(run.write(*range(6)))
    with_memory_of_old_code(run)
    keys = run.write(6, 7)
    if is_in_parts:
        run.look_in_parts(keys, ended=ended)
    else:
        run.look(keys, ended=ended)
    assert run.fed == list(range(8))
    assert run.state.counts.evaluated == 8
    assert run.state.progress.replaying is None
    assert run.state.ended == ended


def test_a_finding_of_the_old_code_stays() -> None:
    run = FollowedRun(rule=ExplodingTensor(collection_names="gradients"))
    run.trial.collections(gradients=["a"])
    run.look(run.write(0, a=[float("nan")]) + run.write(1, a=[1.0]))
    assert run.state.status is RuleStatus.ISSUES_FOUND
    before = run.state.transition
    run.state = replace(run.state, memory={"other": 1}, memory_version=0)
    run.look(run.write(2, a=[1.0]))
    assert run.state.status is RuleStatus.ISSUES_FOUND
    assert run.state.transition == before
    assert run.state.evidence is not None


def test_a_run_that_has_ended_is_not_evaluated_again() -> None:
    run = FollowedRun()
    run.look(run.write(0, 1), ended=True)
    with_memory_of_old_code(run)
    run.look(ended=True)
    assert run.state.memory == {"steps": "of another form"}


def test_a_late_file_of_a_run_that_has_ended_does_not_meet_the_old_memory() -> None:
    run = FollowedRun()
    run.look(run.write(0, 1), ended=True)
    with_memory_of_old_code(run)
    run.look_in_parts(run.write(2), ended=True)
    assert run.fed == [0, 1, 2]
