"""Evaluations that something is in the way of: what comes back, and what is for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from lambdas.shared.state_table import MemoryTooLargeError, StoredState
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"
RULE = "ExplodingTensor"
MISTYPED = {"rule_to_invoke": RULE, "only_nann": "true"}


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any) -> MemoryPipeline:
    made = memory_pipelines()
    made.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    return made


@pytest.fixture
def write(pipeline: MemoryPipeline, trial_files: Any) -> Callable[..., str]:
    """Writes a step or, without one, the end marker; returns its key."""

    def written(step: int | None = None, **index: Any) -> str:
        if step is None:
            pipeline.store.put(END_MARKER, trial_files.marker_bytes(RUN))
            return END_MARKER
        key = index_key(step, "worker_0")
        pipeline.store.put(key, trial_files.index_bytes(step, **index))
        return key

    return written


def evaluate(pipeline: MemoryPipeline, *keys: str) -> None:
    assert not pipeline.service().evaluate(pipeline.records(keys), lambda: 60_000)


def details(pipeline: MemoryPipeline) -> str:
    text: str = pipeline.bus.details[-1]["DebugRuleEvaluationStatuses"][0]["StatusDetails"]
    return text


class TestParametersThatMakeNoRule:
    """A deployment with a mistake in it, while jobs run."""

    @pytest.mark.parametrize("num_nan", [0, 2])
    def test_do_not_change_a_verdict(
        self, pipeline: MemoryPipeline, write: Callable[..., str], num_nan: int
    ) -> None:
        evaluate(pipeline, write(0, num_nan=num_nan), write())
        verdict = pipeline.state()
        assert verdict.ended
        pipeline.parameters = MISTYPED
        evaluate(pipeline, END_MARKER)
        assert pipeline.state() == verdict

    def test_do_not_withdraw_the_finding_of_a_job_that_runs(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        evaluate(pipeline, write(0, num_nan=1))
        pipeline.parameters = MISTYPED
        evaluate(pipeline, write(1))
        assert pipeline.statuses() == ["InProgress", "IssuesFound"]

    def test_are_reported_and_taken_back_when_they_are_corrected(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        correct = pipeline.parameters
        evaluate(pipeline, write(0))
        before = pipeline.state()
        pipeline.parameters = MISTYPED
        evaluate(pipeline, write(1))
        blocked = pipeline.state()
        assert blocked.status is RuleStatus.ERROR
        assert "only_nann" in details(pipeline)
        assert (blocked.progress, blocked.memory) == (before.progress, before.memory)
        evaluate(pipeline, write(2))
        assert pipeline.state() == blocked, "told once"
        pipeline.parameters = correct
        evaluate(pipeline, write(3))
        assert pipeline.state().counts.evaluated == 4, "what came in between is not lost"
        evaluate(pipeline, write(4, num_nan=1))
        assert pipeline.statuses() == ["InProgress", "Error", "InProgress", "IssuesFound"]

    def test_a_verdict_can_follow_the_correction_at_once(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        correct = pipeline.parameters
        pipeline.parameters = MISTYPED
        evaluate(pipeline, write(0))
        pipeline.parameters = correct
        evaluate(pipeline, write(1), write())
        assert pipeline.statuses() == ["InProgress", "Error", "NoIssuesFound"]
        assert details(pipeline) == "2 steps evaluated, 0 not evaluated"

    def test_the_reason_does_not_outlive_the_correction(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        correct = pipeline.parameters
        pipeline.parameters = MISTYPED
        evaluate(pipeline, write())
        pipeline.parameters = correct
        evaluate(pipeline, END_MARKER)
        assert "only_nann" not in pipeline.state().reason
        assert "no step of this run was saved" in details(pipeline)

    def test_an_end_that_was_seen_with_them_is_judged_on_the_next_delivery(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        correct = pipeline.parameters
        pipeline.parameters = MISTYPED
        evaluate(pipeline, write(0), write())
        pipeline.parameters = correct
        evaluate(pipeline, END_MARKER)
        assert pipeline.statuses() == ["InProgress", "Error", "NoIssuesFound"]

    @pytest.mark.parametrize("value", ["é" * 90_000, [[[]]] * 5000, {"a": "é" * 80_000}])
    def test_however_large_they_are(
        self, pipeline: MemoryPipeline, write: Callable[..., str], trial_files: Any, value: Any
    ) -> None:
        rule = {"RuleConfigurationName": RULE, "RuleParameters": {"only_nan": value}}
        job = trial_files.job_bytes(RUN, debug_rule_configurations=(rule,))
        pipeline.store.put(JOB_FILE, job.replace(b"\\u00e9", "é".encode()))
        evaluate(pipeline, write(0))
        assert pipeline.state().status is RuleStatus.ERROR
        assert len(pipeline.state().reason) <= 1024

    def test_however_deep_they_are(
        self, pipeline: MemoryPipeline, write: Callable[..., str], trial_files: Any
    ) -> None:
        rule = {"RuleConfigurationName": RULE, "RuleParameters": {"only_nan": 5}}
        job = trial_files.job_bytes(RUN, debug_rule_configurations=(rule,))
        for depth in (300, 700, 850, 880, 900, 920, 940, 950, 960):
            nested = b"[" * depth + b"]" * depth
            pipeline.store.put(JOB_FILE, job.replace(b'"only_nan": 5', b'"only_nan": ' + nested))
            evaluate(pipeline, write(0))


class TestAStateThatIsTooLarge:
    @pytest.fixture(autouse=True)
    def small_items(self, pipeline: MemoryPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        save = pipeline.states.save

        def save_small(stored: StoredState, state: EvaluationState) -> StoredState:
            if state.progress.workers:
                raise MemoryTooLargeError(stored.key, 1_000_000)
            return save(stored, state)

        monkeypatch.setattr(pipeline.states, "save", save_small)

    def test_ends_as_error_for_good(
        self, pipeline: MemoryPipeline, write: Callable[..., str]
    ) -> None:
        evaluate(pipeline, write(0))
        given_up = pipeline.state()
        assert (given_up.status, given_up.ended) == (RuleStatus.ERROR, True)
        assert "takes 1000000 bytes" in details(pipeline)
        evaluate(pipeline, write(1), write(2, num_nan=1), write())
        assert pipeline.state() == given_up
        assert pipeline.statuses() == ["InProgress", "Error"], "an incomplete memory judges nothing"

    def test_keeps_a_finding_and_does_not_judge_the_run_again_for_every_file(
        self, pipeline: MemoryPipeline, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        evaluate(pipeline, *(write(step, num_nan=4 * (step == 2)) for step in range(3)))
        found = pipeline.state()
        assert found.status is RuleStatus.ISSUES_FOUND
        assert found.evidence is not None
        monkeypatch.setattr(pipeline.store, "list", None)
        evaluate(pipeline, write(3), write())
        assert pipeline.state() == found
        assert pipeline.statuses() == ["InProgress", "IssuesFound"]

    def test_keeps_a_verdict(self, pipeline: MemoryPipeline, write: Callable[..., str]) -> None:
        evaluate(pipeline, write(0), write())
        assert pipeline.statuses() == ["InProgress", "NoIssuesFound"]
        evaluate(pipeline, write(1))
        assert pipeline.state().status is RuleStatus.NO_ISSUES_FOUND
