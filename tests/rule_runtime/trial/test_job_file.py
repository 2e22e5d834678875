"""Reading `job.json`: none, a good one and a damaged one are three things."""

from __future__ import annotations

import pytest

from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.memory import MemoryStore
from rule_runtime.trial.job_file import read_job_file, usable_job_file

JOB = JobFile("mnist-7", "run-1", "local", "2026-11-20T10:00:00Z")


def holding(name: str, data: bytes) -> MemoryStore:
    store = MemoryStore(name)
    store.put(JOB_FILE, data)
    return store


def test_a_good_one_is_returned() -> None:
    assert read_job_file(holding("good", JOB.encode())) == JOB
    assert usable_job_file(holding("good", JOB.encode())) == JOB


def test_none_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert read_job_file(MemoryStore("none")) is None
    assert usable_job_file(MemoryStore("none")) is None
    assert caplog.messages == []


@pytest.mark.parametrize("data", [b"{", b"[]", b" " * (MAX_JOB_FILE_BYTES + 1)])
def test_a_damaged_one_counts_as_none_and_is_reported_once(
    caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    store = holding(f"damaged-{len(data)}-{data[:1]!r}", data)
    with pytest.raises(JobFileError):
        read_job_file(store)
    for _ in range(3):
        assert usable_job_file(store) is None
    (message,) = caplog.messages
    assert store.uri in message


def test_whoever_reads_may_tell_it_otherwise() -> None:
    reported: list[str] = []
    assert usable_job_file(holding("reported", b"{"), reported.append) is None
    assert len(reported) == 1
