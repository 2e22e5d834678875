"""A job whose files kill the process takes nobody else along for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.storage.memory import MemoryStore
from lambdas.evaluate_rule.attempts import DynamoAttempts
from lambdas.evaluate_rule.service import PutBackError
from lambdas.shared import clients
from rule_runtime.engine.outcome import RuleStatus
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"
KEY = index_key(0, "worker_0")
MAX_RECEIVE_COUNT = 10


class ProcessDeath(BaseException):
    """What an evaluator sees of running out of memory, or out of time: nothing."""


class DeadlyStore(MemoryStore):
    """A trial whose index file is more than the process can take."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key == KEY:
            raise ProcessDeath
        return super().get(key, start, length)


class Queue:
    """Hands out all its messages in every batch, as often as a queue does before it gives up."""

    def __init__(self, pipeline: MemoryPipeline, roots: Sequence[str]) -> None:
        self.receive_counts = dict.fromkeys(roots, 0)
        self._pipeline = pipeline

    def deliver(self) -> None:
        for root in self.receive_counts:
            self.receive_counts[root] += 1
        records = [
            self._pipeline.record(root, KEY, count)
            for root, count in self.receive_counts.items()
            if count <= MAX_RECEIVE_COUNT
        ]
        try:
            failures = self._pipeline.service().evaluate(records, lambda: 60_000)
        except ProcessDeath:
            return
        for record in records:
            if record["messageId"] not in failures:
                del self.receive_counts[record["messageId"]]


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline]) -> MemoryPipeline:
    made: MemoryPipeline = memory_pipelines()
    return made


@pytest.fixture
def add_job(pipeline: MemoryPipeline, trial_files: Any) -> Callable[..., str]:
    """Adds a job with one sick step; returns its root."""

    def added(root: str, store: type[MemoryStore] = MemoryStore) -> str:
        files = pipeline.other_stores[f"s3://tensors/{root}"] = store(name=root.strip("/"))
        files.put(JOB_FILE, trial_files.job_bytes(RUN))
        files.put(KEY, trial_files.index_bytes(0, num_nan=1))
        return root

    return added


def judged(pipeline: MemoryPipeline) -> set[str]:
    return {
        key.root_uri.removeprefix("memory://")
        for key, stored in pipeline.states.items.items()
        if stored.state.status is RuleStatus.ISSUES_FOUND and stored.state.is_announced
    }


@pytest.mark.parametrize("place", range(4))
def test_all_others_are_done_with_after_three_deliveries(
    pipeline: MemoryPipeline, add_job: Callable[..., str], place: int
) -> None:
    roots = [add_job(f"job-{number}/") for number in range(3)]
    queue = Queue(pipeline, [*roots[:place], add_job("deadly/", DeadlyStore), *roots[place:]])
    for _ in range(3):
        queue.deliver()
    assert judged(pipeline) == set(roots)
    assert queue.receive_counts == {"deadly/": 3}, "nothing else comes back"


def test_several_deadly_jobs_among_many_cost_one_delivery_each(
    pipeline: MemoryPipeline, add_job: Callable[..., str]
) -> None:
    roots = [add_job(f"job-{number}/") for number in range(40)]
    deadly = [add_job(root, DeadlyStore) for root in ("a/", "m/", "zzz/")]
    queue = Queue(pipeline, [deadly[0], *roots[:20], deadly[1], *roots[20:], deadly[2]])
    for _ in range(2 + len(deadly)):
        queue.deliver()
    assert judged(pipeline) == set(roots)
    assert set(queue.receive_counts) == set(deadly)


def test_new_records_come_first_and_together(
    pipeline: MemoryPipeline, add_job: Callable[..., str]
) -> None:
    new = [add_job("new-1/"), add_job("new-2/")]
    records = [
        pipeline.record(add_job("deadly/", DeadlyStore), KEY, 2),
        *(pipeline.record(root, KEY) for root in new),
    ]
    with pytest.raises(ProcessDeath):
        pipeline.service().evaluate(records, lambda: 60_000)
    assert judged(pipeline) == set(new)


def test_after_an_outage_nobody_waits(
    pipeline: MemoryPipeline, add_job: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [add_job(f"job-{number}/") for number in range(20)]

    def unavailable(*_: Any) -> Any:
        raise ConnectionError("the table is not available")

    with monkeypatch.context() as outage:
        outage.setattr(pipeline.states, "load", unavailable)
        outage.setattr(pipeline.attempts, "num_unfinished", unavailable)
        records = [pipeline.record(root, KEY, 2) for root in roots]
        assert len(pipeline.service().evaluate(records, lambda: 60_000)) == len(roots)
    records = [pipeline.record(root, KEY, 3) for root in roots]
    assert not pipeline.service().evaluate(records, lambda: 60_000)
    assert judged(pipeline) == set(roots)


def test_who_was_only_unlucky_is_tried_before_who_is_deadly(
    pipeline: MemoryPipeline, add_job: Callable[..., str]
) -> None:
    roots = [add_job("deadly/", DeadlyStore), add_job("unlucky/")]
    pipeline.attempts.notes.update({"s3://tensors/deadly/": 2, "s3://tensors/unlucky/": 1})
    records = [pipeline.record(root, KEY, 4) for root in roots]
    failures = pipeline.service().evaluate(records, lambda: 60_000)
    assert {root: type(error) for root, error in failures.items()} == {"deadly/": PutBackError}
    assert judged(pipeline) == {"unlucky/"}
    assert pipeline.attempts.num_unfinished("s3://tensors/unlucky/") == 0


def test_who_was_only_unlucky_does_not_wait_for_a_quiet_moment(
    pipeline: MemoryPipeline, add_job: Callable[..., str]
) -> None:
    pipeline.attempts.notes["s3://tensors/unlucky/"] = 1
    records = [
        pipeline.record(add_job("unlucky/"), KEY, 2),
        pipeline.record(add_job("new/"), KEY),
    ]
    assert not pipeline.service().evaluate(records, lambda: 60_000)


@pytest.mark.usefixtures("aws")
def test_notes_in_the_table() -> None:
    attempts = DynamoAttempts(clients.dynamodb(), "states", "ExplodingTensor", lambda: 1000.0)
    other = DynamoAttempts(clients.dynamodb(), "states", "VanishingGradient")
    root = "s3://tensors/a/"
    assert attempts.num_unfinished(root) == 0
    for num_unfinished in (1, 2):
        attempts.begin(root)
        assert attempts.num_unfinished(root) == num_unfinished
    assert other.num_unfinished(root) == 0
    (item,) = clients.dynamodb().scan(TableName="states")["Items"]
    assert item["expires_at"] == {"N": str(1000 + 24 * 3600)}
    attempts.end(root)
    assert attempts.num_unfinished(root) == 0
