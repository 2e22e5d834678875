"""What happens to a state that everybody wants to write, and to a verdict that was not told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from lambdas.evaluate_rule.run_evaluation import ContendedStateError
from lambdas.shared.state_table import StoredState, VersionConflictError
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any) -> MemoryPipeline:
    made = memory_pipelines()
    made.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    for step in range(3):
        made.store.put(
            index_key(step, "worker_0"), trial_files.index_bytes(step, num_nan=4 * (step == 2))
        )
    made.store.put(END_MARKER, trial_files.marker_bytes(RUN))
    return made


def evaluate(pipeline: MemoryPipeline, *keys: str) -> dict[str, Exception]:
    return pipeline.service().evaluate(pipeline.records(keys), lambda: 60_000)


def test_who_never_wins_the_race_hands_the_record_back(
    pipeline: MemoryPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not evaluate(pipeline, index_key(0, "worker_0"))

    def lose(stored: StoredState, state: EvaluationState) -> StoredState:
        raise VersionConflictError(stored.key, pipeline.states.load(stored.key))

    monkeypatch.setattr(pipeline.states, "save", lose)
    (failure,) = evaluate(pipeline, index_key(1, "worker_0")).values()
    assert isinstance(failure, ContendedStateError)


def test_a_verdict_that_another_evaluator_wrote_is_announced_by_who_finds_it(
    pipeline: MemoryPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = index_key(2, "worker_0")
    with monkeypatch.context() as broken:
        publish = pipeline.bus.publish

        def die(detail_type: str, detail: Any, **more: Any) -> None:
            (status,) = detail["DebugRuleEvaluationStatuses"]
            if status["RuleEvaluationStatus"] == "IssuesFound":
                raise ConnectionError("the process died here")
            publish(detail_type, detail, **more)

        broken.setattr(pipeline.bus, "publish", die)
        assert evaluate(pipeline, index_key(0, "worker_0"), index_key(1, "worker_0"), key)
    assert pipeline.statuses() == ["InProgress"]
    # Another evaluator, woken by an event that brings nothing new.
    assert not evaluate(pipeline, index_key(0, "worker_0"))
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]


def test_time_left_is_looked_at_between_jobs_only(pipeline: MemoryPipeline) -> None:
    assert not pipeline.service().evaluate(pipeline.records([END_MARKER]), lambda: 1)
    assert pipeline.state().ended
