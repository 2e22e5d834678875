from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest

from hook_layer.capture import ArraySnapshot, CapturedTensor, StepRecord
from hook_layer.delivery import StepDelivery
from hook_layer.format.modes import ModeKeys
from hook_layer.step_files import RunIdentity
from hook_layer.storage.base import StorageError
from tests.hook_layer.doubles import Clock, Switchable, make_record

IDENTITY = RunIdentity("RUN", "worker_0")


def make_delivery(
    fails: Callable[[str], bool] = lambda _: False,
) -> tuple[StepDelivery, Switchable, Clock]:
    store, clock = Switchable(fails), Clock()
    return StepDelivery(store, IDENTITY, clock=clock), store, clock


def test_a_step_that_is_lost_takes_a_number_and_the_next_index_file_tells() -> None:
    delivery, store, _ = make_delivery(lambda key: key.startswith("events/000000000001"))
    for step in range(4):
        delivery.write(make_record(step))
    assert store.numbers() == [(1, None), (3, 1), (4, None)]
    assert delivery.last_sequence == 4
    assert (delivery.counters.steps_written, delivery.counters.steps_lost) == (3, 1)


def test_steps_lost_before_they_came_here_are_told_too() -> None:
    delivery, store, _ = make_delivery()
    delivery.skip(2)
    delivery.write(make_record(0))
    delivery.skip(1)
    assert store.numbers() == [(3, 2)]
    assert delivery.last_sequence == 4


def test_an_outage_is_waited_for_and_then_saving_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    is_away = True
    delivery, store, clock = make_delivery(lambda _: is_away)
    for step in range(50):
        delivery.write(make_record(step))
    assert store.attempts == 3
    assert caplog.text.count("in a row") == 1
    clock.now += 1
    delivery.write(make_record(50))
    assert store.attempts == 4
    is_away = False
    clock.now += 1.9
    delivery.write(make_record(51))
    assert store.attempts == 4
    clock.now += 0.1
    for step in range(52, 60):
        delivery.write(make_record(step))
    assert store.numbers() == [(53, 52)] + [(number, None) for number in range(54, 61)]
    counters = delivery.counters
    assert (counters.steps_written, counters.steps_undelivered, counters.errors) == (8, 52, 4)
    assert "no space" in (counters.first_error or "")
    assert caplog.text.count("works again; 52 steps were lost") == 1


def test_an_index_file_in_doubt_is_stored_again_before_the_next_step() -> None:
    failing = {"index/000000000/000000000001_worker_0.json"}
    delivery, store, _ = make_delivery(lambda key: key in failing)
    for step in range(2):
        delivery.write(make_record(step))
    assert delivery.counters.steps_undelivered == 1
    failing.clear()
    delivery.write(make_record(2))
    assert store.numbers() == [(1, None), (2, None), (3, None)]
    assert (delivery.counters.steps_written, delivery.counters.steps_lost) == (3, 0)


def test_an_index_file_in_doubt_is_stored_again_at_the_end() -> None:
    is_away = False
    delivery, store, _ = make_delivery(lambda key: is_away and key.startswith("index"))
    delivery.write(make_record(0))
    is_away = True
    delivery.write(make_record(1))
    is_away = False
    delivery.finish()
    assert store.numbers() == [(1, None), (2, None)]
    assert delivery.counters.steps_lost == 0


def test_an_index_file_that_is_never_taken_is_given_up_with_its_number() -> None:
    bad = "index/000000000/000000000001_worker_0.json"
    delivery, store, clock = make_delivery(lambda key: key == bad)
    for step in range(6):
        delivery.write(make_record(step))
        clock.now += 60
    assert store.numbers() == [(1, None), (5, 3), (6, None)]
    assert delivery.counters.steps_undelivered == 3


def test_what_was_lost_in_front_of_an_index_file_in_doubt_is_not_forgotten() -> None:
    failing = {"events/000000000000/000000000000_worker_0.tfevents"}
    delivery, store, clock = make_delivery(lambda key: key in failing)
    delivery.write(make_record(0))
    failing.add("index/000000000/000000000001_worker_0.json")
    for step in range(1, 6):
        delivery.write(make_record(step))
        clock.now += 60
    assert store.numbers()[0] == (5, 4)


def test_a_role_that_may_not_remove_or_overwrite_saves_its_steps() -> None:
    delivery, store, _ = make_delivery(lambda key: key == "job.json")

    def refuse() -> None:
        raise StorageError("403")

    for _ in range(5):
        delivery.housekeep("removing training_job_end.ts", refuse)
        delivery.put_file("job.json", b"{}")
    for step in range(3):
        delivery.write(make_record(step))
    assert store.numbers() == [(1, None), (2, None), (3, None)]
    counters = delivery.counters
    assert (counters.errors, counters.first_error) == (0, None)
    assert counters.file_errors > 5


def test_small_files_are_tried_again_behind_a_step_and_before_the_end() -> None:
    is_away = True
    delivery, store, _ = make_delivery(lambda key: is_away and key in {"job.json", "c.json"})
    delivery.put_file("job.json", b"old")
    delivery.put_file("job.json", b"job")
    delivery.write(make_record(0))
    delivery.put_file("c.json", b"c")
    is_away = False
    delivery.put_file("end", lambda: str(delivery.last_sequence).encode(), is_last=True)
    assert store.order[-3:] == ["job.json", "c.json", "end"]
    assert (store.get("job.json"), store.get("end")) == (b"job", b"1")
    assert delivery.counters.files_undelivered == 0


def test_the_last_file_is_tried_while_the_store_fails_and_counts_what_is_lost() -> None:
    delivery, store, _ = make_delivery(lambda key: key.startswith("events/"))
    for step in range(5):
        delivery.write(make_record(step))
    delivery.put_file("collections.json", b"c")
    assert not list(store.list())
    delivery.put_file("end", lambda: str(delivery.last_sequence).encode(), is_last=True)
    assert list(store.list()) == ["collections.json", "end"]
    assert store.get("end") == b"5"


def test_files_that_could_not_be_stored_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    delivery, _, _ = make_delivery(lambda key: key == "job.json")
    delivery.put_file("job.json", b"{}")
    delivery.put_file("end", b"", is_last=True)
    delivery.finish()
    assert delivery.counters.files_undelivered == 1
    assert sum("job.json" in record.message for record in caplog.records) == 1


class BrokenSnapshot(ArraySnapshot):
    def array(self) -> np.ndarray:
        raise RuntimeError("the device is gone")


class BrokenStatistics:
    def rows(self) -> np.ndarray:
        raise RuntimeError("the device is gone")


def test_a_tensor_that_cannot_be_encoded_costs_nothing_but_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivery, store, _ = make_delivery()
    record = make_record(0)
    ragged = np.empty(2, dtype=object)
    ragged[:] = [[1, 2], [3]]
    one = np.ones(1, "f4")
    record.tensors["ragged"] = CapturedTensor("object", (2,), raw=ArraySnapshot(ragged))
    record.tensors["\ud800"] = CapturedTensor("float32", (1,), raw=ArraySnapshot(one))
    record.tensors["gone"] = CapturedTensor("float32", (1,), raw=BrokenSnapshot(one))
    record.tensors["bare"] = CapturedTensor(
        "float32", (1,), raw=ArraySnapshot(one), statistics=BrokenStatistics()
    )
    with caplog.at_level(logging.WARNING):
        delivery.write(record)
    (index,) = store.indexes()
    assert [row.name for row in index.locations] == ["w", "bare"]
    assert {row.name for row in index.shapes} == {"ragged", "gone"}
    assert delivery.counters.tensors_left_out == 4
    assert len(caplog.records) == 1


def test_a_step_whose_encoding_fails_is_no_fault_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery, store, _ = make_delivery()

    def out_of_memory(_: StepRecord) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("hook_layer.delivery.encode_step", out_of_memory)
        for step in range(5):
            delivery.write(make_record(step))
    delivery.write(make_record(5))
    assert store.numbers() == [(6, 5)]


def test_a_step_without_tensors_leaves_no_files_and_no_gap() -> None:
    delivery, store, _ = make_delivery()
    delivery.write(StepRecord(0, ModeKeys.TRAIN, 0))
    delivery.write(make_record(1))
    assert store.numbers() == [(1, None)]
