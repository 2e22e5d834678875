"""Whatever becomes of the events, the verdict is that of one pass over the run in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.conftest import ROOT, MemoryPipeline, s3_event, sqs_record

RUN = "01JD0000000000000000000001"
ROOT_URI = f"s3://tensors/{ROOT}"
ENDED = Wake(ROOT_URI, RUN, WakeReason.ENDED)
SWEEP = Wake(ROOT_URI, RUN, WakeReason.SWEEP)


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


class Messages:
    """A queue that delivers in any order, again and again until a message is done with."""

    def __init__(self, pipeline: MemoryPipeline) -> None:
        self.undelivered: list[str | Wake] = []
        self._pipeline = pipeline
        self._num_received: Counter[str | Wake] = Counter()

    def send(self, rule: str, wake: Wake) -> None:
        assert rule == self._pipeline.rule_name
        self.undelivered.append(wake)

    def records(self, batch: Sequence[str | Wake]) -> list[dict[str, Any]]:
        made = []
        for number, message in enumerate(batch):
            self._num_received[message] += 1
            if isinstance(message, Wake):
                body, count = message.to_body(), self._num_received[message]
                made.append(sqs_record(body, f"m{number}", count))
            else:
                made.append(sqs_record(s3_event(ROOT + message), f"m{number}"))
        return made


def time_for(num_pieces: int | None) -> Callable[[], float]:
    """Return a clock that ends the call after some questions whether there is time."""
    asked = 0

    def remaining_ms() -> float:
        nonlocal asked
        asked += 1
        return 60_000 if num_pieces is None or asked <= 2 + num_pieces else 1.0

    return remaining_ms


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(job=jobs(), data=st.data())
def test_any_order_duplicates_batches_crashes_and_calls_that_end_early(
    job: list[list[int]], data: st.DataObject, world: Given
) -> None:
    files = world.small_job(job)
    pipeline = world.memory_pipelines()
    pipeline.store.uri = ROOT_URI  # where continuations are sent to
    pipeline.store.put(JOB_FILE, world.trial_files.job_bytes(RUN))
    queue = pipeline.queue = Messages(pipeline)
    crashes = iter(data.draw(st.lists(st.booleans(), max_size=12), label="crashes"))
    crash_at_will(pipeline, lambda: next(crashes, False))
    pieces = iter(data.draw(st.lists(st.integers(0, 2), max_size=12), label="pieces of work"))

    written = 0
    objects: list[tuple[str, bytes | None]] = [(file.key, file.content) for file in files]
    objects += [end_of(job, data, world)]
    while written < len(objects) or queue.undelivered:
        can_wait = bool(queue.undelivered)
        if written < len(objects) and not (can_wait and data.draw(st.booleans(), label="wait")):
            key, content = objects[written]
            if content is not None:
                pipeline.store.put(key, content)
            queue.undelivered.append(key if content is not None else ENDED)
            if data.draw(st.integers(0, 4), label="sweep") == 0:
                queue.undelivered.append(SWEEP)
            written += 1
        else:
            batch = data.draw(
                st.lists(st.sampled_from(queue.undelivered), min_size=1, max_size=5, unique=True)
            )
            records = queue.records(batch)
            failed = pipeline.service().evaluate(records, time_for(next(pieces, None)))
            done = {message for message, record in zip(batch, records, strict=True)
                    if record["messageId"] not in failed}  # fmt: skip
            # A queue may deliver again what is done with; mostly it does not.
            if data.draw(st.integers(0, 4), label="again") < 4:
                queue.undelivered = [kept for kept in queue.undelivered if kept not in done]

    expected, actual = world.verdict_in_order(files), pipeline.state()
    assert actual.status is expected.status
    assert actual.evidence == expected.evidence
    assert actual.counts == expected.counts
    assert actual.memory == expected.memory
    assert actual.is_announced
    statuses = pipeline.statuses()
    assert statuses[-1] == expected.status.value
    assert set(statuses) <= {"InProgress", expected.status.value}


def end_of(job: list[list[int]], data: st.DataObject, world: Given) -> tuple[str, bytes | None]:
    """Return what tells that the job has ended: a marker, or somebody who knows."""
    kind = data.draw(st.sampled_from(["marker", "marker of all files", "no marker"]), label="end")
    if kind == "no marker":
        return "", None
    last: dict[str, int] = {}
    if kind == "marker of all files":
        last = {f"worker_{worker}": len(job) for worker in range(len(job[0]) if job else 0)}
    return END_MARKER, world.trial_files.marker_bytes(RUN, **last)


def crash_at_will(pipeline: MemoryPipeline, crashes: Callable[[], bool]) -> None:
    """Let the process die before or after each thing that it does to the world."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if crashes():
                raise CrashError
            result = function(*arguments, **more)
            if crashes():
                raise CrashError
            return result

        return call

    pipeline.states.save = wrapped(pipeline.states.save)  # type: ignore[method-assign]
    pipeline.states.mark_announced = wrapped(pipeline.states.mark_announced)  # type: ignore[method-assign]
    pipeline.bus.publish = wrapped(pipeline.bus.publish)  # type: ignore[method-assign]
    pipeline.queue.send = wrapped(pipeline.queue.send)
    pipeline.registrations.put = wrapped(pipeline.registrations.put)  # type: ignore[method-assign]
