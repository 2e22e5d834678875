from __future__ import annotations

import pytest

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.run.stop_signal import StopSignal
from hook_layer.storage.base import StorageError
from hook_layer.storage.memory import MemoryStore


def request(run_id: str | None = "RUN", reason: str = "exploding") -> bytes:
    return StopFile(reason=reason, requested_at="2026-11-20T10:00:00Z", run_id=run_id).encode()


def test_a_request_for_this_run_is_seen_and_stays() -> None:
    store = MemoryStore()
    signal = StopSignal(store, "RUN")
    assert signal.check() is None
    store.put(STOP_FILE, request())
    seen = signal.check()
    assert seen is not None
    assert seen.reason == "exploding"
    store.delete(STOP_FILE)
    assert signal.check() is seen
    assert signal.requested is seen


def test_a_request_for_another_run_is_not_for_us() -> None:
    store = MemoryStore()
    store.put(STOP_FILE, request("OLD"))
    signal = StopSignal(store, "RUN")
    assert signal.check() is None
    assert signal.check() is None
    store.put(STOP_FILE, request())
    assert signal.check() is not None


def test_a_request_without_a_run_counts_unless_it_was_there_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    store.put(STOP_FILE, request(None))
    signal = StopSignal(store, "RUN")
    assert signal.check() is None
    assert signal.check() is None
    assert caplog.text.count("names no run and existed before this run") == 1
    assert "write it with RunId RUN" in caplog.text
    store.put(STOP_FILE, request(None, "again"))
    assert signal.check() is not None


def test_a_file_that_is_no_request_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.put(STOP_FILE, b"{")
    signal = StopSignal(store, "RUN")
    assert signal.check() is None
    assert signal.check() is None
    assert len(caplog.records) == 1


def test_errors_of_the_store_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryStore):
        def get(self, key: str, *_: object) -> bytes:
            raise StorageError(f"no network for {key}")

    signal = StopSignal(Failing(), "RUN")
    for _ in range(3):
        assert signal.check() is None
    assert signal.num_errors == 3
    assert len(caplog.records) == 1


def test_polling_looks_at_every_interval_until_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            store.put(STOP_FILE, request())
        return False

    signal = StopSignal(store, "RUN", poll_s=7.0)
    monkeypatch.setattr(signal._closed, "wait", wait)
    signal._poll()
    assert waits == [7.0, 7.0, 7.0]
    assert signal.requested is not None

    closed = StopSignal(MemoryStore(), "RUN")
    closed.close()
    closed._poll()  # returns at once


def test_the_thread_sees_a_request() -> None:
    store = MemoryStore()
    store.put(STOP_FILE, request())
    signal = StopSignal(store, "RUN", poll_s=0.001)
    signal.start()
    assert signal._thread is not None
    signal._thread.join(20)
    assert signal.requested is not None
