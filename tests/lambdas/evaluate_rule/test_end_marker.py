"""What the end marker says, and what is done when it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any) -> MemoryPipeline:
    made = memory_pipelines()
    made.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    for step in range(3):
        made.store.put(index_key(step, "worker_0"), trial_files.index_bytes(step))
    return made


def evaluate(pipeline: MemoryPipeline, *keys: str) -> None:
    assert not pipeline.service().evaluate(pipeline.records(keys), lambda: 60_000)


def test_who_has_seen_the_last_files_looks_for_no_more(
    pipeline: MemoryPipeline, trial_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.store, "list", None)
    pipeline.store.put(END_MARKER, trial_files.marker_bytes(RUN, worker_0=3))
    evaluate(pipeline, *(index_key(step, "worker_0") for step in range(3)))
    evaluate(pipeline, END_MARKER)
    assert pipeline.state().ended
    assert pipeline.statuses() == ["InProgress", "NoIssuesFound"]


def test_who_has_not_finds_them(pipeline: MemoryPipeline, trial_files: Any) -> None:
    pipeline.store.put(END_MARKER, trial_files.marker_bytes(RUN, worker_0=3))
    evaluate(pipeline, END_MARKER)
    assert pipeline.state().counts.evaluated == 3
    assert pipeline.state().ended


@pytest.mark.parametrize(
    "content",
    [
        b"done",
        b"\xff",
        b"[]",
        b"{}",
        b'{"RunId": 5}',
        b'{"RunId": "r", "Sequences": {"worker_0": -1}}',
        b"[" * 100_000,
        b'{"RunId": "r", "Sequences": {' + b" " * 10_000_000 + b"}}",
    ],
)
def test_a_marker_that_cannot_be_read_ends_the_current_run_and_is_reported(
    pipeline: MemoryPipeline, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.store.put(END_MARKER, content)
    evaluate(pipeline, END_MARKER)
    assert pipeline.state().ended
    assert pipeline.state().counts.evaluated == 3
    record = next(record for record in caplog.records if "end marker" in record.message)
    assert END_MARKER in record.__dict__["problem"]


def test_a_marker_of_another_run_does_not_end_this_one(
    pipeline: MemoryPipeline, trial_files: Any
) -> None:
    pipeline.store.put(END_MARKER, trial_files.marker_bytes("01JD0000000000000000000000"))
    evaluate(pipeline, index_key(0, "worker_0"), END_MARKER)
    assert not pipeline.state().ended
