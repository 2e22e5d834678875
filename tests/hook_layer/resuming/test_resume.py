"""What a resumed run reads from the trial's folder."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from hook_layer.configuration.job import JobEnvironment
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.index import IndexFile, TensorShape
from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.process.time_limit import within
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.resuming.checkpoint_state import SavedRun
from hook_layer.resuming.resume import Numbering, is_same_run, numbering
from hook_layer.storage.base import StorageError
from hook_layer.storage.memory import MemoryStore

JOB = JobEnvironment("job-1")
SAVED = SavedRun("RUN", "job-1", "", 5)


def put_index(
    store: MemoryStore, step: int, sequence: int, *, run: str = "RUN", worker: str = "worker_0"
) -> None:
    shapes = (TensorShape("w", "w", (1,)),)
    index = IndexFile(ModeKeys.TRAIN, step, None, shapes=shapes, run=run, sequence=sequence)
    store.put(index_key(step, worker), index.encode())


def numbered(
    store: MemoryStore, *, step: int, saved_step: int, sequence: int, worker: str = "worker_0"
) -> Numbering:
    start = RunStart("RUN", "", step, saved_step=saved_step, sequence=sequence, training_run=1)
    return numbering(store, RunIdentity("RUN", worker, 2), start)


def test_a_new_run_begins_with_the_first_number() -> None:
    assert numbered(MemoryStore(), step=9, saved_step=-1, sequence=0) == Numbering(0)


def test_numbers_continue_after_the_last_saved_step() -> None:
    store = MemoryStore()
    put_index(store, 900, 10)
    put_index(store, 1000, 11)
    assert numbered(store, step=950, saved_step=900, sequence=10) == Numbering(10)
    assert numbered(store, step=1050, saved_step=1000, sequence=11) == Numbering(11)


@pytest.mark.parametrize("last", [999, 400])
def test_what_is_missing_before_the_step_is_lost(last: int) -> None:
    store = MemoryStore()
    put_index(store, last, 7)
    put_index(store, 1003, 3, run="ANOTHER")
    put_index(store, 1004, 9, worker="worker_1")
    store.put("index/000000001/damaged.json", b"")
    store.put(index_key(1002, "worker_0"), b"{")
    assert numbered(store, step=1010, saved_step=1005, sequence=10) == Numbering(7, 3)


def test_a_folder_without_any_file_changes_nothing() -> None:
    assert numbered(MemoryStore(), step=15, saved_step=14, sequence=10) == Numbering(10)


class Away(MemoryStore):
    def get(self, *_: Any, **__: Any) -> bytes:
        raise StorageError("503")


class Silent(MemoryStore):
    def get(self, *_: Any, **__: Any) -> bytes:
        time.sleep(20)
        raise AssertionError


@pytest.mark.parametrize("store", [Away(), Silent()])
def test_a_store_that_cannot_be_asked_is_believed_to_be_the_same(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hook_layer.resuming.resume._TIMEOUT_S", 0.05)
    assert is_same_run(store, JOB, SAVED)
    assert numbered(store, step=15, saved_step=14, sequence=10) == Numbering(10)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("content", "is_same"),
    [
        (JobFile("job-1", "RUN", "local", "").encode(), True),
        (JobFile("job-1", "ANOTHER", "local", "").encode(), False),
        (b"{}", False),
        (None, False),
    ],
)
def test_the_job_file_decides_whether_the_run_is_the_same(
    content: bytes | None, is_same: bool
) -> None:
    store = MemoryStore()
    if content is not None:
        store.put(JOB_FILE, content)
    assert is_same_run(store, JOB, SAVED) == is_same
    assert not is_same_run(store, JobEnvironment("job-2"), SAVED)


def test_what_takes_too_long_is_not_waited_for() -> None:
    gate = threading.Event()
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        within(0.01, lambda: gate.wait(20))
    gate.set()
    assert within(20, lambda: 3) == 3
    with pytest.raises(KeyError):
        within(20, lambda: {}["x"])
