from __future__ import annotations

from collections.abc import Iterator

import pytest

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import JobFile, parse_stop_file
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE
from hook_layer.storage.base import Buffers, StorageError
from hook_layer.storage.memory import MemoryStore
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.outcome import IssueFound, Outcome, Passed, RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView

NOW = 1_790_000_000.0
HEALTHY = {"gradient/a": [1.0]}
SICK = {"gradient/a": [0.0]}


def begun(trial: TrialBuilder) -> None:
    job = JobFile("job", trial.run or "", "unknown", "2026-11-21T00:00:00+00:00")
    trial.store.put(JOB_FILE, job.encode())


def judge_of(trial: TrialBuilder, *, stops: bool = True, run: str | None = None) -> LiveJudge:
    rules = [(name, create_rule(name)) for name in ("VanishingGradient", "ExplodingTensor")]
    return LiveJudge(
        trial.store,
        rules,
        stops=StopPolicy(frozenset(dict(rules)) if stops else frozenset()),
        run=run,
        clock=lambda: NOW,
    )


def test_nothing_is_judged_before_the_run_begins() -> None:
    trial = TrialBuilder()
    judge = judge_of(trial)
    assert not judge.look()
    begun(trial)
    assert not judge.look()
    trial.step(0, HEALTHY)
    assert judge.look()
    assert not judge.look()
    assert {state.status for state in judge.states.values()} == {RuleStatus.IN_PROGRESS}


def test_a_finding_asks_this_run_to_stop_once() -> None:
    trial = TrialBuilder()
    begun(trial)
    judge = judge_of(trial)
    for step in range(3):
        trial.step(step, HEALTHY if step == 0 else SICK)
        judge.look()
        if step == 1:
            assert judge.stopped_by == "VanishingGradient"
            written = trial.store.get(STOP_FILE)
    request = parse_stop_file(written, file=STOP_FILE)
    assert request.run_id == trial.run
    assert request.rule_configuration_name == "VanishingGradient"
    assert "gradient/a" in request.reason
    assert request.requested_at.startswith("2026-")
    assert trial.store.get(STOP_FILE) == written


class HasMine(Rule):
    """Finds that the collection `mine` has tensors."""

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        has_some = step.declares("mine") and len(step.tensors(collections=("mine",)))
        return IssueFound("a: is there") if has_some else Passed()


def test_what_the_hook_learns_later_is_read() -> None:
    trial = TrialBuilder()
    begun(trial)
    judge = LiveJudge(trial.store, [("HasMine", HasMine())], clock=lambda: NOW)
    for step, pattern in enumerate(("^b$", "^gradient/a$")):
        trial.collections(mine=(pattern,))
        trial.step(step, HEALTHY)
        judge.look()
        found = judge.states["HasMine"].status is RuleStatus.ISSUES_FOUND
        assert found == step


def test_who_only_observes_asks_nobody_to_stop() -> None:
    trial = TrialBuilder()
    begun(trial)
    trial.step(0, SICK)
    judge = judge_of(trial, stops=False)
    judge.look()
    assert judge.states["VanishingGradient"].status is RuleStatus.ISSUES_FOUND
    assert judge.stopped_by is None
    assert not trial.store.exists(STOP_FILE)


def test_at_the_end_the_verdicts_are_drawn_and_nobody_is_asked_to_stop() -> None:
    trial = TrialBuilder()
    begun(trial)
    judge = judge_of(trial)
    trial.step(0, HEALTHY)
    judge.look()
    trial.step(1, SICK)
    trial.store.put(END_MARKER, EndMarker(run_id=trial.run).encode())
    judge.look(is_over=True)
    assert judge.states["VanishingGradient"].status is RuleStatus.ISSUES_FOUND
    assert judge.states["ExplodingTensor"].status is RuleStatus.NO_ISSUES_FOUND
    assert not trial.store.exists(STOP_FILE)


def test_a_run_that_saved_nothing_is_not_judged() -> None:
    judge = judge_of(TrialBuilder())
    judge.look(is_over=True)
    assert {state.status for state in judge.states.values()} == {RuleStatus.ERROR}


def test_steps_of_an_earlier_run_in_the_folder_are_left_alone() -> None:
    trial = TrialBuilder(run="01OLD")
    trial.step(0, SICK)
    later = TrialBuilder(trial.store, run="02NEW")
    begun(later)
    judge = judge_of(later)
    later.step(1, HEALTHY)
    judge.look()
    assert judge.stopped_by is None


def test_a_run_that_was_there_before_is_not_taken_for_the_one_to_come() -> None:
    earlier = TrialBuilder(run="01OLD")
    begun(earlier)
    for step in range(0, 1000, 10):
        earlier.step(step, SICK)
    judge = judge_of(earlier, run="02NEW")
    assert not judge.look()
    later = TrialBuilder(earlier.store, run="02NEW")
    begun(later)
    for step in range(3):
        later.step(step, HEALTHY)
        assert judge.look()
        assert not judge.look()
    assert judge.stopped_by is None
    later.step(3, SICK)
    judge.look()
    assert judge.stopped_by == "VanishingGradient"


def test_an_earlier_run_alone_is_no_verdict() -> None:
    earlier = TrialBuilder(run="01OLD")
    begun(earlier)
    earlier.step(0, SICK)
    judge = judge_of(earlier, run="02NEW")
    judge.look(is_over=True)
    assert {state.status for state in judge.states.values()} == {RuleStatus.ERROR}


def test_files_of_slower_workers_are_found_behind_the_newest_step() -> None:
    trial = TrialBuilder(num_workers=2)
    begun(trial)
    judge = judge_of(trial)
    for step in range(150):
        trial.step(step, HEALTHY, worker="worker_0")
        judge.look()
    for step in range(60, 150):
        trial.step(step, SICK, worker="worker_1")
    for step in range(60):
        trial.step(step, SICK, worker="worker_1")
    judge.look()
    judge.look(is_over=True)
    assert judge.states["VanishingGradient"].status is RuleStatus.ISSUES_FOUND


class OnceFailing(MemoryStore):
    """A store of which one call fails."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._count()
        return super().get(key, start, length)

    def put(self, key: str, data: Buffers) -> None:
        self._count()
        super().put(key, data)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        self._count()
        return super().list(prefix, after)

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == -1:
                raise StorageError("please reduce your request rate")


def test_a_look_that_fails_anywhere_is_made_up_for_by_the_next() -> None:
    num_failed = 0
    for calls_before in range(100):
        store = OnceFailing()
        trial = TrialBuilder(store)
        begun(trial)
        for step in range(3):
            trial.step(step, HEALTHY if step == 0 else SICK)
        judge = judge_of(trial)
        store.left = calls_before
        try:
            assert judge.look()
        except StorageError:
            num_failed += 1
            assert judge.look()
        was_reached, store.left = store.left < 0, None
        assert judge.stopped_by == "VanishingGradient"
        assert judge.states["VanishingGradient"].status is RuleStatus.ISSUES_FOUND
        assert store.exists(STOP_FILE)
        assert not judge.look()
        if not was_reached:
            break
    else:
        pytest.fail("a look never ended without a failed call")
    assert num_failed >= 4  # job.json, the index, tensors, stop.json
