"""Evaluations that take longer than one call: what is saved, passed on, and never lost."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from hook_layer.storage.memory import MemoryStore
from lambdas.evaluate_rule.continuation import MAX_HOPS, OutOfTimeError
from lambdas.shared.state_table import StoredState
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.conftest import ROOT, RULE, MemoryPipeline, index_bytes, sqs_record

RUN = "01JD0000000000000000000001"
ROOT_URI = f"s3://tensors/{ROOT}"
CALL_MS = 60_000.0


class SlowStore(MemoryStore):
    """A trial in which reading an index file takes a while."""

    def __init__(self, ms_per_file: float = 50.0) -> None:
        super().__init__()
        self.ms_per_file = ms_per_file
        self.spent_ms = 0.0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key.startswith("index/"):
            self.spent_ms += self.ms_per_file
        return super().get(key, start, length)


class Queue:
    """The evaluator's queue, with the calls that its messages lead to."""

    def __init__(self, pipeline: MemoryPipeline, store: SlowStore) -> None:
        self.pipeline = pipeline
        self.store = store
        self.wakes: list[Wake] = []
        self.calls_ms: list[float] = []

    def send(self, rule: str, wake: Wake) -> None:
        assert rule == RULE
        self.wakes.append(Wake.of_event(json.loads(wake.to_body()), {"tensors"}))

    def evaluate(self, records: Iterable[dict[str, Any]]) -> dict[str, Exception]:
        begin = self.store.spent_ms
        failures = self.pipeline.service().evaluate(
            records, lambda: CALL_MS - (self.store.spent_ms - begin)
        )
        self.calls_ms.append(self.store.spent_ms - begin)
        return failures

    def deliver(self, *keys: str) -> None:
        assert not self.evaluate(self.pipeline.records(keys))
        while self.wakes:
            self.wake(self.wakes.pop(0))

    def wake(self, wake: Wake, receive_count: int = 1) -> None:
        assert not self.evaluate([sqs_record(wake.to_body(), "wake", receive_count)])


@pytest.fixture
def store(trial_files: Any) -> SlowStore:
    made = SlowStore()
    made.put(JOB_FILE, trial_files.job_bytes(RUN))
    return made


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline], store: SlowStore) -> MemoryPipeline:
    made: MemoryPipeline = memory_pipelines(store=store)
    made.other_stores[ROOT_URI] = store
    store.uri = ROOT_URI
    return made


@pytest.fixture
def queue(pipeline: MemoryPipeline, store: SlowStore) -> Queue:
    made = Queue(pipeline, store)
    pipeline.queue = made
    return made


def write(store: SlowStore, num_steps: int, **last: Any) -> str:
    """Write the index files of a job; return the key of the last one."""
    for step in range(num_steps):
        changes = last if step == num_steps - 1 else {}
        store.put(index_key(step, "worker_0"), index_bytes(step, **changes))
    return index_key(num_steps - 1, "worker_0")


def test_ten_thousand_waiting_steps_are_judged_in_many_short_calls(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore
) -> None:
    queue.deliver(write(store, 10_000, num_nan=2))
    state = pipeline.state()
    assert state.counts.evaluated == 10_000
    assert state.status is RuleStatus.ISSUES_FOUND
    assert state.evidence is not None
    assert state.evidence.step == 9_999
    assert len(queue.calls_ms) > 10
    # A quarter is kept back; one piece of work, 256 files at most, may be under way then.
    assert max(queue.calls_ms) <= 0.75 * CALL_MS + 256 * store.ms_per_file
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]


def test_the_state_is_saved_before_anything_is_passed_on(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    save, send = pipeline.states.save, queue.send

    def saved(stored: StoredState, state: EvaluationState) -> StoredState:
        events.append("saved")
        return save(stored, state)

    def sent(rule: str, wake: Wake) -> None:
        events.append("sent")
        assert wake.version == next(iter(pipeline.states.items.values())).version
        send(rule, wake)

    monkeypatch.setattr(pipeline.states, "save", saved)
    monkeypatch.setattr(queue, "send", sent)
    queue.deliver(write(store, 3_000))
    assert events[:3] == ["saved", "saved", "sent"], "first sight, checkpoint, continuation"
    assert ("sent", "sent") not in pairwise(events)
    assert pipeline.state().counts.evaluated == 3_000


def test_hops_are_counted(queue: Queue, store: SlowStore) -> None:
    hops = []
    key = write(store, 3_000)
    assert not queue.evaluate(queue.pipeline.records([key]))
    while queue.wakes:
        hops.append(queue.wakes[0].hop)
        queue.wake(queue.wakes.pop(0))
    assert hops == list(range(1, len(hops) + 1))


def test_an_end_that_takes_many_calls_leads_to_one_verdict(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, trial_files: Any
) -> None:
    write(store, 3_000)
    store.put(END_MARKER, trial_files.marker_bytes(RUN, worker_0=3_000))
    queue.deliver(END_MARKER)
    assert len(queue.calls_ms) > 2
    assert pipeline.state().ended
    assert pipeline.state().counts.evaluated == 3_000
    assert pipeline.statuses() == ["InProgress", "NoIssuesFound"]


def test_a_crash_before_the_message_loses_nothing(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise ConnectionError("the queue is not there")

    key = write(store, 3_000)
    with monkeypatch.context() as broken:
        broken.setattr(queue, "send", die)
        assert queue.evaluate(pipeline.records([key]))
    evaluated = pipeline.state().counts.evaluated
    assert 0 < evaluated < 3_000
    queue.deliver(key)
    assert pipeline.state().counts.evaluated == 3_000


def test_a_continuation_that_comes_back_goes_on(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not queue.evaluate(pipeline.records([write(store, 3_000)]))
    wake = queue.wakes.pop()
    with monkeypatch.context() as broken:
        broken.setattr(pipeline.bus, "publish", None)
        broken.setattr(queue, "send", None)
        assert queue.evaluate([sqs_record(wake.to_body(), "wake")])
    before = pipeline.state().counts.evaluated
    queue.wake(wake, receive_count=2)
    assert pipeline.state().counts.evaluated > before


def test_of_two_chains_one_goes_on(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore
) -> None:
    key = write(store, 3_000)
    assert not queue.evaluate(pipeline.records([key]))
    assert not queue.evaluate(pipeline.records([key]))
    first, second = queue.wakes
    queue.wakes.clear()
    version = next(iter(pipeline.states.items.values())).version
    assert (first.version, second.version) == (version - 1, version)
    spent = store.spent_ms
    queue.wake(first)
    assert (queue.wakes, store.spent_ms) == ([], spent), "the other call passes it on"
    queue.wake(second)
    assert queue.wakes


def test_there_is_an_end_to_hops(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert not queue.evaluate(pipeline.records([write(store, 3_000)]))
    queue.wakes.clear()
    queue.wake(Wake(ROOT_URI, RUN, WakeReason.CONTINUE, hop=MAX_HOPS))
    assert queue.wakes == []
    assert any("waits for the sweep" in record.message for record in caplog.records)
    queue.wake(Wake(ROOT_URI, RUN, WakeReason.SWEEP, silent_s=90.0))
    assert queue.wakes[0].hop == 1, "which begins anew"
    while queue.wakes:
        queue.wake(queue.wakes.pop(0))
    assert pipeline.state().counts.evaluated == 3_000


def test_without_a_queue_the_record_itself_comes_back(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore
) -> None:
    pipeline.queue = None
    records = pipeline.records([write(store, 2_000)])
    (failure,) = queue.evaluate(records).values()
    assert isinstance(failure, OutOfTimeError)
    while queue.evaluate(records):
        assert len(queue.calls_ms) < 10
    assert pipeline.state().counts.evaluated == 2_000


def test_a_large_job_leaves_the_others_their_share(
    pipeline: MemoryPipeline, queue: Queue, store: SlowStore, trial_files: Any
) -> None:
    roots = [f"s3://tensors/{name}/" for name in ("a", "z")]
    for root in roots:
        other = pipeline.other_stores[root] = SlowStore()
        other.uri = root
        other.put(JOB_FILE, trial_files.job_bytes(RUN))
        other.put(index_key(0, "worker_0"), trial_files.index_bytes(0))
    large = pipeline.records([write(store, 3_000)])
    records = [
        pipeline.record("a/", index_key(0, "worker_0")),
        *large,
        pipeline.record("z/", index_key(0, "worker_0")),
    ]
    assert not queue.evaluate(records)
    assert {key.root_uri for key in pipeline.states.items} == {ROOT_URI, *roots}
    assert [wake.root_uri for wake in queue.wakes] == [ROOT_URI]
    # Half of what the first one left, and one piece of work.
    assert queue.calls_ms[0] <= 0.75 * CALL_MS / 2 + 256 * store.ms_per_file


class TestMemory:
    MIB = 1 << 20

    def test_a_batch_of_large_files_is_taken_in_by_portions(
        self, pipeline: MemoryPipeline, store: SlowStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = []
        for step in range(40):
            keys.append(index_key(step, "worker_0"))
            store.put(keys[-1], index_bytes(step) + b" " * (2 * self.MIB))
        num_bytes, peaks = 0, []
        get, save = store.get, pipeline.states.save

        def counted(key: str, start: int = 0, length: int | None = None) -> bytes:
            nonlocal num_bytes
            data = get(key, start, length)
            num_bytes += len(data)
            return data

        def saved(stored: StoredState, state: EvaluationState) -> StoredState:
            nonlocal num_bytes
            peaks.append(num_bytes)
            num_bytes = 0
            return save(stored, state)

        monkeypatch.setattr(store, "get", counted)
        monkeypatch.setattr(pipeline.states, "save", saved)
        assert not pipeline.service().evaluate(pipeline.records(keys), lambda: CALL_MS)
        assert pipeline.state().counts.evaluated == 40
        # A portion is 16 MiB; the eight files behind it are being read ahead.
        assert max(peaks) <= (16 + 9 * 2 + 1) * self.MIB

    def test_a_step_of_many_workers_does_not_need_its_length(
        self, pipeline: MemoryPipeline, store: SlowStore
    ) -> None:
        """What the workers say of the step is 256 MiB long; the store has the bytes once."""
        num_workers = 64
        content = index_bytes(0, workers=num_workers, sequence=1, num_nan=1) + b" " * (4 * self.MIB)
        keys = [index_key(0, f"worker_{worker}") for worker in range(num_workers)]
        for key in keys:
            store.put(key, content)
        tracemalloc.start()
        try:
            assert not pipeline.service().evaluate(pipeline.records(keys), lambda: CALL_MS)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert pipeline.state().counts.evaluated == 1
        assert peak < 64 * self.MIB
