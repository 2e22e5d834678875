from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from hook_layer.capture.captured_step import ArraySnapshot, StepRecord
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.tensorboard import TensorBoardExporter
from hook_layer.delivery.writer import StepWriter
from hook_layer.format.index import parse_index
from hook_layer.format.modes import ModeKeys
from hook_layer.format.records import decode_record
from hook_layer.storage.base import StoreRefusedError
from hook_layer.storage.memory import MemoryStore
from tests.hook_layer.doubles import TIMEOUT_S, Clock, CountedSnapshot, Switchable, make_record

IDENTITY = RunIdentity("RUN", "worker_0", 2)


class Exporter(TensorBoardExporter):
    """An exporter that calls a function."""

    def __init__(self, export: Callable[[StepRecord], None]) -> None:
        super().__init__(MemoryStore())
        self._export = export

    def __call__(self, record: StepRecord) -> None:
        self._export(record)


def index_keys(store: MemoryStore) -> list[str]:
    return list(store.list("index/"))


def submit(writer: StepWriter, steps: Iterable[int]) -> None:
    for step in steps:
        writer.submit(make_record(step))


@pytest.fixture(autouse=True)
def _reset() -> None:
    CountedSnapshot.released = 0


def test_a_step_is_an_event_file_then_an_index_file() -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY)
    submit(writer, (3, 5))
    assert writer.close(TIMEOUT_S)
    assert [key.split("/")[0] for key in store.order] == ["events", "index"] * 2
    index = parse_index(store.get(store.order[3]), file="i")
    assert (index.run, index.workers, index.sequence) == ("RUN", 2, 2)
    assert (index.mode, index.mode_step, index.time) == (ModeKeys.TRAIN, 5, 1.5)
    (location,), statistics = index.locations, index.statistics
    assert statistics is not None
    assert not index.shapes
    assert index.event_file_name is not None
    data = store.get(index.event_file_name, location.start, location.length)
    record = decode_record(data, file="e", crc32c=statistics.crc32c[0])
    np.testing.assert_array_equal(record.value, np.arange(1000, dtype="f4") + 5)
    assert statistics.column("max")[0] == 1004
    assert writer.counters.steps_written == 2
    assert CountedSnapshot.released == 2


def test_a_tensor_without_value_has_a_shape_and_never_both() -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY)
    record = make_record(0)
    record.tensors["w"].raw = None
    writer.submit(record)
    writer.close(TIMEOUT_S)
    index = parse_index(store.get(store.order[0]), file="i")
    assert len(store.order) == 1
    assert index.event_file_name is None
    assert [(row.name, row.shape) for row in index.shapes] == [("w", (1000,))]
    assert index.statistics is not None
    assert index.statistics.crc32c == (None,)


def test_training_waits_for_memory_and_loses_nothing() -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=10_000))
    submitted: list[int] = []

    def train() -> None:
        for step in range(8):
            writer.submit(make_record(step))
            submitted.append(step)

    training = threading.Thread(target=train, daemon=True)
    training.start()
    training.join(0.2)
    assert len(submitted) == 2  # 4.5 KB each
    store.gate.set()
    training.join(TIMEOUT_S)
    assert writer.close(TIMEOUT_S)
    assert writer.counters.waits > 0
    assert writer.counters.wait_s > 0
    assert len(index_keys(store)) == 8


def test_a_step_larger_than_the_bound_passes_alone() -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=10))
    submit(writer, range(3))
    assert writer.close(TIMEOUT_S)
    assert writer.counters.steps_written == 3


def test_whole_steps_are_dropped_and_counted() -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=10_000, on_full="drop"))
    submit(writer, range(8))
    store.gate.set()
    assert writer.close(TIMEOUT_S)
    counters = writer.counters
    assert (counters.steps_written, counters.steps_dropped, counters.waits) == (2, 6, 0)
    assert CountedSnapshot.released == 8
    assert store.numbers() == [(1, None), (2, None)]


def test_a_store_that_fails_never_holds_training_up() -> None:
    store = Switchable(lambda _: True)
    options = HookOptions(queue_bytes=5_000, spool_bytes=0)
    writer = StepWriter(store, IDENTITY, options=options, clock=Clock())
    submit(writer, range(50))
    assert writer.close(TIMEOUT_S)
    assert writer.counters.steps_undelivered == 50
    assert writer.counters.errors == 3
    assert CountedSnapshot.released == 50
    assert writer.submitted_sequence == 50


def test_while_the_store_is_away_steps_go_to_local_disk_and_later_to_the_store() -> None:
    is_away, clock = True, Clock()
    store = Switchable(lambda _: is_away)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=5_000), clock=clock)
    submit(writer, range(20))
    writer.put_file("collections.json", b"c")
    assert not writer.wait_until_idle(TIMEOUT_S)
    assert writer.counters.steps_in_spool == 20
    assert CountedSnapshot.released == 20
    is_away = False
    clock.now += 1
    submit(writer, range(20, 23))
    writer.put_file("end", lambda: str(writer.submitted_sequence).encode(), is_last=True)
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 24)]
    assert [key for key in store.order if key.startswith("index")] == index_keys(store)
    assert store.order[-1] == "end"
    assert store.exists("collections.json")
    counters = writer.counters
    assert (counters.steps_written, counters.steps_in_spool, counters.steps_lost) == (23, 0, 0)
    assert counters.spool_folder is None
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_store_that_hangs_does_not_fill_the_memory() -> None:
    store, clock = Switchable(hangs=True), Clock()
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=20_000), clock=clock)
    submit(writer, range(3))
    assert store.called.wait(TIMEOUT_S)
    clock.now += 6
    submit(writer, range(3, 30))
    counters = writer.counters
    assert (counters.steps_dropped, counters.steps_written) == (0, 0)
    with writer._changed:  # else the store takes what nobody has spooled by now
        assert writer._changed.wait_for(lambda: counters.steps_spooled == 29, TIMEOUT_S)
    store.gate.set()
    assert writer.wait_until_idle(TIMEOUT_S)
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 31)]
    assert [key for key in store.order if key.startswith("index")] == index_keys(store)
    assert counters.steps_spooled == 29
    assert CountedSnapshot.released == 30


@pytest.mark.parametrize("queue_bytes", [10, 6_000])
def test_large_steps_pass_a_store_that_hangs(queue_bytes: int) -> None:
    store, clock = Switchable(hangs=True), Clock()
    options = HookOptions(queue_bytes=queue_bytes, max_wait_s=TIMEOUT_S)
    writer = StepWriter(store, IDENTITY, options=options, clock=clock)
    writer.submit(make_record(0))
    assert store.called.wait(TIMEOUT_S)
    clock.now += 6
    held = 0
    for step in range(1, 9):
        writer.submit(make_record(step))
        held = max(held, writer._threads.held_bytes)
    assert held <= 2 * make_record(0).nbytes
    assert not writer.counters.steps_dropped
    store.gate.set()
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 10)]
    assert writer.counters.steps_spooled > 0


def test_a_step_that_comes_after_the_end_is_dropped_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY)
    writer.submit(make_record(0))
    assert writer.close(TIMEOUT_S)
    submit(writer, range(1, 3))
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(1, None)]
    assert (writer.counters.steps_written, writer.counters.steps_dropped) == (1, 2)
    assert CountedSnapshot.released == 3
    assert writer.submitted_sequence == 3
    assert caplog.text.count("after the hook was closed") == 1


def test_a_step_that_hung_and_then_failed_comes_before_those_that_passed_it_by() -> None:
    store, clock = Switchable(hangs=True), Clock()
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=20_000), clock=clock)
    writer.submit(make_record(0))
    assert store.called.wait(TIMEOUT_S)
    clock.now += 6
    submit(writer, range(1, 10))
    failures = iter([True])
    store.fails = lambda _: next(failures, False)
    store.gate.set()
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 11)]
    assert [key for key in store.order if key.startswith("index")] == index_keys(store)
    assert writer.counters.errors == 1


def test_a_slow_store_makes_training_wait_before_steps_are_lost() -> None:
    store, clock = Switchable(hangs=True), Clock()
    options = HookOptions(queue_bytes=10_000, spool_bytes=20_000, max_wait_s=TIMEOUT_S)
    writer = StepWriter(store, IDENTITY, options=options, clock=clock)
    writer.submit(make_record(12))
    assert store.called.wait(TIMEOUT_S)
    clock.now += 6
    training = threading.Thread(target=submit, args=(writer, range(12)), daemon=True)
    training.start()
    training.join(0.2)
    assert training.is_alive()
    store.gate.set()
    training.join(TIMEOUT_S)
    assert writer.close(TIMEOUT_S)
    assert (writer.counters.steps_written, writer.counters.steps_lost) == (13, 0)


def test_a_store_that_hangs_holds_training_up_once_and_not_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=10_000, max_wait_s=0.02))
    submit(writer, range(12))
    counters = writer.counters
    assert (counters.waits, counters.steps_dropped) == (1, 10)
    assert 0.02 <= counters.wait_s < 1
    assert sum("without waiting" in record.message for record in caplog.records) == 1
    store.gate.set()
    assert writer.wait_until_idle(TIMEOUT_S)
    submit(writer, range(12, 14))
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(1, None), (2, None), (13, 10), (14, None)]
    assert CountedSnapshot.released == 14


def test_training_waits_again_once_something_was_stored() -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=5_000, max_wait_s=0.02))
    submit(writer, range(3))
    store.gate.set()
    assert writer.wait_until_idle(TIMEOUT_S)
    store.gate.clear()
    submit(writer, range(3, 6))
    assert writer.counters.waits == 2
    store.gate.set()
    assert writer.close(TIMEOUT_S)


def test_steps_dropped_at_the_end_are_counted() -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY, options=HookOptions(queue_bytes=5_000, on_full="drop"))
    submit(writer, range(4))
    store.gate.set()
    writer.put_file("end", lambda: str(writer.submitted_sequence).encode(), is_last=True)
    assert writer.close(TIMEOUT_S)
    assert store.get("end") == b"4"


def test_a_fork_of_the_process_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY)
    with monkeypatch.context() as patch:
        patch.setattr("hook_layer.delivery.writer.os.getpid", lambda: -1)
        writer.submit(make_record(0))
    assert writer.close(TIMEOUT_S)
    assert not store.order
    assert CountedSnapshot.released == 1


def test_a_fork_of_the_process_waits_for_no_thread_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY)
    writer.submit(make_record(0))
    with monkeypatch.context() as patch:
        patch.setattr("hook_layer.delivery.writer.os.getpid", lambda: -1)
        assert writer.wait_until_idle(0.0)
    assert not writer.wait_until_idle(0.0)
    store.gate.set()
    assert writer.close(TIMEOUT_S)


def test_a_store_that_hangs_does_not_hold_close_up() -> None:
    store = Switchable(hangs=True)
    writer = StepWriter(store, IDENTITY)
    submit(writer, range(3))
    writer.put_file("end", b"", is_last=True)
    assert not writer.close(0.05)
    counters = writer.counters
    assert (counters.steps_in_spool, counters.steps_lost, counters.files_undelivered) == (3, 0, 1)
    store.gate.set()


def test_closing_waits_for_a_store_that_is_away_but_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Switchable(lambda _: True)
    writer = StepWriter(store, IDENTITY)
    writer.submit(make_record(0))
    assert not writer.wait_until_idle(TIMEOUT_S)
    assert not writer.close(0.3)
    assert store.attempts == 4  # once more, but not in a hot loop
    assert writer.counters.steps_in_spool == 1
    assert f"python -m hook_layer.spool {writer.counters.spool_folder}" in caplog.text


def test_closing_does_not_wait_for_a_store_that_is_back() -> None:
    is_away = True
    store = Switchable(lambda _: is_away)
    writer = StepWriter(store, IDENTITY, clock=Clock())
    submit(writer, range(5))
    assert not writer.wait_until_idle(TIMEOUT_S)
    is_away = False
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 6)]


def test_closing_retries_with_pauses() -> None:
    failures = iter([True] * 3)
    store = Switchable(lambda _: next(failures, False))
    writer = StepWriter(store, IDENTITY)
    writer.submit(make_record(0))
    writer.put_file("end", b"", is_last=True)
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(1, None)]
    assert store.exists("end")


def test_closing_does_not_wait_for_a_store_that_refuses() -> None:
    store = Switchable(lambda _: True)
    store.error = StoreRefusedError
    writer = StepWriter(store, IDENTITY, clock=Clock())
    submit(writer, range(5))
    writer.put_file("end", b"", is_last=True)
    assert writer.close(TIMEOUT_S)
    counters = writer.counters
    assert (counters.steps_in_spool, counters.files_undelivered) == (5, 1)


def test_a_file_that_is_refused_does_not_hold_the_end_up() -> None:
    store = Switchable(lambda key: key == "job.json")
    store.error = StoreRefusedError
    writer = StepWriter(store, IDENTITY, clock=Clock())
    writer.put_file("job.json", b"{}")
    writer.submit(make_record(0))
    writer.put_file("end", b"", is_last=True)
    assert writer.close(TIMEOUT_S)
    assert store.exists("end")
    assert writer.counters.files_undelivered == 1


def test_the_exporter_gets_every_step_and_its_errors_cost_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[tuple[int, int]] = []

    def export(record: StepRecord) -> None:
        seen.append((record.step, CountedSnapshot.released))
        raise OSError("no space")

    store = Switchable(lambda key: "000001_worker" in key)
    writer = StepWriter(store, IDENTITY, exporter=Exporter(export), clock=Clock())
    submit(writer, range(4))
    writer.close(0.2)
    assert seen == [(step, step) for step in range(4)]  # before its memory is given back
    assert writer.counters.export_errors == 4
    assert caplog.text.count("exporting a step failed") == 1


def test_an_exporter_that_hangs_does_not_fill_the_memory() -> None:
    gate, called, seen, clock = threading.Event(), threading.Event(), [], Clock()

    def export(record: StepRecord) -> None:
        called.set()
        assert gate.wait(TIMEOUT_S)
        seen.append(record.step)

    options = HookOptions(queue_bytes=20_000)
    store = Switchable()
    writer = StepWriter(store, IDENTITY, options=options, exporter=Exporter(export), clock=clock)
    writer.submit(make_record(0))
    assert called.wait(TIMEOUT_S)
    clock.now += 6
    submit(writer, range(1, 20))
    gate.set()
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(number, None) for number in range(1, 21)]
    assert len(seen) + writer.counters.export_errors == 20
    assert writer.counters.export_errors > 0


def test_numbers_of_steps_that_were_lost_elsewhere_are_left_out() -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY, sequence=4)
    writer.skip(2)
    writer.submit(make_record(0))
    writer.submit(StepRecord(1, ModeKeys.TRAIN, 1))  # nothing is in it
    assert writer.submitted_sequence == 6
    assert writer.close(TIMEOUT_S)
    assert store.numbers() == [(6, 2)]


def test_reductions_are_records_with_a_checksum() -> None:
    store = Switchable()
    writer = StepWriter(store, IDENTITY)
    record = make_record(0)
    record.tensors["w"].raw = None
    mean = ArraySnapshot(np.asarray(1.5, "f4"))
    record.tensors["w"].reductions = [("smdebug/reductions/mean/w", mean)]
    writer.submit(record)
    writer.close(TIMEOUT_S)
    index = parse_index(store.get(index_keys(store)[0]), file="i")
    statistics = index.statistics
    assert [row.name for row in index.locations] == ["smdebug/reductions/mean/w"]
    assert [row.name for row in index.shapes] == ["w"]
    assert statistics is not None
    assert statistics.tensors == ("smdebug/reductions/mean/w", "w")
    assert np.isnan(statistics.values[0]).all()
    assert statistics.crc32c[0] is not None
