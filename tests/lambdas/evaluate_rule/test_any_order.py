"""Whatever becomes of the events, the verdict is that of one pass over the run in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key

if TYPE_CHECKING:
    from rule_runtime.evaluation.state import EvaluationState
    from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"


@dataclass(frozen=True)
class File:
    """One index file of a small job."""

    key: str
    content: bytes


class CrashError(Exception):
    """The process died here."""


@pytest.fixture(scope="module")
def small_job(trial_files: Any) -> Callable[[Sequence[Sequence[int]]], list[File]]:
    """Makes a job's index files in the order of writing, from NaN counts [steps, workers]."""

    def files(num_nan: Sequence[Sequence[int]]) -> list[File]:
        return [
            File(
                index_key(10 * number, f"worker_{worker}"),
                trial_files.index_bytes(
                    10 * number, sequence=number + 1, workers=len(of_step), num_nan=count
                ),
            )
            for number, of_step in enumerate(num_nan)
            for worker, count in enumerate(of_step)
        ]

    return files


@st.composite
def jobs(draw: st.DrawFn) -> list[list[int]]:
    num_workers = draw(st.integers(1, 2))
    counts = st.sampled_from([0, 0, 0, 1, 3])
    return draw(st.lists(st.lists(counts, min_size=num_workers, max_size=num_workers), max_size=6))


@pytest.fixture(scope="module")
def verdict_in_order(
    memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any
) -> Callable[[Sequence[File]], EvaluationState]:
    def verdict(files: Sequence[File]) -> EvaluationState:
        pipeline = memory_pipelines()
        pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN))
        service = pipeline.service()
        for file in files:
            pipeline.store.put(file.key, file.content)
            assert not service.evaluate(pipeline.records([file.key]), lambda: 60_000)
        pipeline.store.put(END_MARKER, trial_files.marker_bytes(RUN))
        assert not service.evaluate(pipeline.records([END_MARKER]), lambda: 60_000)
        return pipeline.state()

    return verdict


@dataclass(frozen=True)
class Given:
    """What the test needs besides its job."""

    small_job: Callable[[Sequence[Sequence[int]]], list[File]]
    verdict_in_order: Callable[[Sequence[File]], EvaluationState]
    memory_pipelines: Callable[..., MemoryPipeline]
    trial_files: Any


@pytest.fixture(scope="module")
def world(small_job: Any, verdict_in_order: Any, memory_pipelines: Any, trial_files: Any) -> Given:
    return Given(small_job, verdict_in_order, memory_pipelines, trial_files)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(job=jobs(), data=st.data())
def test_any_order_duplicates_batches_and_crashes(
    job: list[list[int]], data: st.DataObject, world: Given
) -> None:
    files = world.small_job(job)
    pipeline = world.memory_pipelines()
    pipeline.store.put(JOB_FILE, world.trial_files.job_bytes(RUN))
    crashes = iter(data.draw(st.lists(st.booleans(), max_size=12), label="crashes"))
    crash_at_will(pipeline, lambda: next(crashes, False))

    written, undelivered = 0, []
    marker = world.trial_files.marker_bytes(RUN)
    if data.draw(st.booleans(), label="the marker tells the last files"):
        last = {f"worker_{worker}": len(job) for worker in range(len(job[0]) if job else 0)}
        marker = world.trial_files.marker_bytes(RUN, **last)
    objects = [*((file.key, file.content) for file in files), (END_MARKER, marker)]
    while written < len(objects) or undelivered:
        can_wait = bool(undelivered)
        if written < len(objects) and not (can_wait and data.draw(st.booleans(), label="wait")):
            pipeline.store.put(*objects[written])
            undelivered.append(objects[written][0])
            written += 1
        else:
            batch = data.draw(st.lists(st.sampled_from(undelivered), min_size=1, max_size=5))
            records = pipeline.records(batch)
            failed = pipeline.service().evaluate(records, lambda: 60_000)
            done = {key for key, record in zip(batch, records, strict=True)
                    if record["messageId"] not in failed}  # fmt: skip
            # A queue may deliver again what is done with; mostly it does not.
            if data.draw(st.integers(0, 4), label="again") < 4:
                undelivered = [key for key in undelivered if key not in done]

    expected, actual = world.verdict_in_order(files), pipeline.state()
    assert actual.status is expected.status
    assert actual.evidence == expected.evidence
    assert actual.counts == expected.counts
    assert actual.memory == expected.memory
    assert actual.is_announced
    statuses = pipeline.statuses()
    assert statuses[-1] == expected.status.value
    assert set(statuses) <= {"InProgress", expected.status.value}


def crash_at_will(pipeline: MemoryPipeline, crashes: Callable[[], bool]) -> None:
    """Let the process die before or after each thing that it does to the world."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if crashes():
                raise CrashError
            result = function(*arguments)
            if crashes():
                raise CrashError
            return result

        return call

    pipeline.states.save = wrapped(pipeline.states.save)  # type: ignore[method-assign]
    pipeline.states.mark_announced = wrapped(pipeline.states.mark_announced)  # type: ignore[method-assign]
    pipeline.announcer.announce = wrapped(pipeline.announcer.announce)  # type: ignore[method-assign]
    pipeline.registrations.put = wrapped(pipeline.registrations.put)  # type: ignore[method-assign]
