"""What becomes of steps when the store fails: kept on local disk, or lost, and never unnoticed."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hook_layer.capture.captured_step import ArraySnapshot, CapturedTensor, StepRecord
from hook_layer.delivery.step_delivery import StepDelivery
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import StorageError, StoreRefusedError
from tests.hook_layer.doubles import Clock, Switchable, make_record

IDENTITY = RunIdentity("RUN", "worker_0")
INDEX_1 = "index/000000000/000000000001_worker_0.json"


class Deliveries:
    """A delivery to a store that fails on request; numbers the steps itself."""

    def __init__(self, spool_dir: Path, fails: Callable[[str], bool], spool_bytes: int) -> None:
        self.store, self.clock = Switchable(fails), Clock()
        self.spool_dir = spool_dir
        self.delivery = StepDelivery(
            self.store,
            IDENTITY,
            spool_bytes=spool_bytes,
            spool_dir=str(spool_dir),
            clock=self.clock,
        )
        self.counters = self.delivery.counters
        self.last_number = 0

    def write(self, step: int | StepRecord) -> None:
        self.last_number += 1
        record = make_record(step) if isinstance(step, int) else step
        self.delivery.write(record, self.last_number)

    def wait(self) -> None:
        """Wait for the next try, and try once."""
        self.clock.now += self.delivery.wait_s()
        self.delivery.advance()

    def end(self, content: str | None = None) -> None:
        """Do what is left, once."""
        if content is not None:
            self.delivery.files.put_last("end", content.encode())
        while self.delivery.has_backlog:
            self.wait()
        self.wait()

    def spools(self) -> list[Path]:
        return sorted(self.spool_dir.glob("*"))

    def fates(self) -> tuple[int, int, int]:
        """Return how many steps are stored, wait on local disk, and are lost."""
        counters = self.counters
        return counters.steps_written, counters.steps_in_spool, counters.steps_lost


Factory = Callable[..., Deliveries]


@pytest.fixture
def make(tmp_path: Path) -> Factory:
    def factory(
        fails: Callable[[str], bool] = lambda _: False, *, spool_bytes: int = 1 << 20
    ) -> Deliveries:
        return Deliveries(tmp_path / "spools", fails, spool_bytes)

    return factory


def is_event(step: int) -> Callable[[str], bool]:
    return lambda key: key.startswith(f"events/{step:012d}")


# With a spool ------------------------------------------------------------------------------------


def test_steps_of_an_outage_arrive_later_in_order_with_their_numbers(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True
    made = make(lambda _: is_away)
    for step in range(20):
        made.write(step)
    assert made.store.attempts == 3
    assert made.fates() == (0, 20, 0)
    is_away = False
    made.write(20)
    assert made.store.attempts == 3
    made.clock.now += 1
    made.write(21)
    assert made.store.numbers() == [(number, None) for number in range(1, 23)]
    assert made.store.order == [
        key
        for step in range(22)
        for key in (
            f"events/{step:012d}/{step:012d}_worker_0.tfevents",
            f"index/000000000/{step:012d}_worker_0.json",
        )
    ]
    assert made.fates() == (22, 0, 0)
    assert (made.counters.steps_spooled, made.counters.tensors_written) == (21, 22)
    assert caplog.text.count("in a row") == 1
    assert caplog.text.count("works again") == 1


def test_a_step_from_the_spool_has_the_bytes_of_one_that_never_was_there(make: Factory) -> None:
    is_away = True
    spooled, direct = make(lambda _: is_away), make()
    for step in range(3):
        direct.write(step)
        spooled.write(step)
    is_away = False
    spooled.end()
    keys = list(direct.store.list())
    assert list(spooled.store.list()) == keys
    assert [spooled.store.get(key) for key in keys] == [direct.store.get(key) for key in keys]


def test_only_this_user_may_read_a_spool_and_an_empty_one_leaves_nothing_behind(
    make: Factory,
) -> None:
    is_away = True
    made = make(lambda _: is_away)
    made.write(0)
    (spool,) = made.spools()
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert made.counters.spool_folder == str(spool)
    is_away = False
    made.end()
    assert made.spools() == []
    assert made.counters.spool_folder is None


def test_steps_without_room_are_lost_and_counted_in_the_next_index_file(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True
    made = make(lambda _: is_away, spool_bytes=40_000)
    for step in range(10):
        made.write(step)
    written, kept, lost = made.fates()
    assert (written, kept + lost) == (0, 10)
    assert 1 < kept < 5
    assert caplog.text.count("the local disk has no room") == 1
    is_away = False
    made.wait()
    made.write(10)
    assert made.store.numbers() == [*((n, None) for n in range(1, kept + 1)), (11, lost)]


def test_a_spool_without_a_folder_loses_steps_and_says_why(
    make: Factory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spools").write_text("no folder")
    made = make(lambda _: True)
    made.write(0)
    assert made.fates() == (0, 0, 1)
    assert "spools" in caplog.text


def test_a_step_that_alone_is_refused_is_set_aside_and_holds_nothing_up(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(is_event(1))
    made.store.error = StoreRefusedError
    for step in range(6):
        made.write(step)
        made.clock.now += 60
    assert made.store.numbers() == [(1, None), (3, 1), (4, None), (5, None), (6, None)]
    assert made.fates() == (5, 1, 0)
    assert "refused step 2 but takes others; the step stays in" in caplog.text
    made.end("end")
    assert made.fates() == (5, 1, 0)
    made.delivery.leave()
    assert len(made.spools()) == 1


def test_a_step_that_was_set_aside_is_tried_once_more_at_the_end(make: Factory) -> None:
    made = make(is_event(1))
    for step in range(9):
        made.write(step)
        made.clock.now += 60
    assert made.fates() == (8, 1, 0)
    made.store.fails = lambda _: False
    made.end("end")
    assert made.store.numbers()[:4] == [(1, None), (2, None), (3, 1), (4, None)]
    assert made.store.order[-1] == "end"
    assert made.fates() == (9, 0, 0)
    assert made.spools() == []


def test_a_store_that_takes_nothing_sets_nothing_aside(make: Factory) -> None:
    made = make(lambda _: True)
    made.store.error = StoreRefusedError
    for step in range(6):
        made.write(step)
    for _ in range(30):
        made.wait()
    assert made.fates() == (0, 6, 0)
    made.store.fails = lambda _: False
    made.end()
    assert made.store.numbers() == [(number, None) for number in range(1, 7)]


def test_what_cannot_be_delivered_stays_in_the_spool_and_the_log_says_how_to_deliver_it(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(lambda _: True)
    made.delivery.files.put("job.json", b"{}")
    made.delivery.files.put_last("training_job_end.ts", b"end")
    for step in range(3):
        made.write(step)
    made.delivery.leave()
    (spool,) = made.spools()
    assert f"python -m hook_layer.spool {spool}" in caplog.text
    assert "3 steps and 2 other files" in caplog.text
    found = sorted(str(path.relative_to(spool)) for path in spool.rglob("*") if path.is_file())
    steps = [f"steps/{number:016d}.{kind}" for number in (1, 2, 3) for kind in ("json", "tfevents")]
    files = ["end/training_job_end.ts", "files/job.json", "lock", "target.json"]
    assert found == [*files[:3], *steps, files[3]]


def test_a_step_that_vanished_from_the_spool_is_lost_and_the_others_arrive(make: Factory) -> None:
    is_away = True
    made = make(lambda _: is_away)
    for step in range(3):
        made.write(step)
    for path in made.spools()[0].glob("steps/*2.json"):
        path.unlink()
    is_away = False
    made.end()
    assert made.store.numbers() == [(1, None), (3, 1)]
    assert made.fates() == (2, 0, 1)


# Without a spool ---------------------------------------------------------------------------------


def test_without_a_spool_a_failed_step_is_lost_and_counted_in_the_next_index_file(
    make: Factory,
) -> None:
    made = make(is_event(1), spool_bytes=0)
    for step in range(4):
        made.write(step)
    assert made.store.numbers() == [(1, None), (3, 1), (4, None)]
    assert made.fates() == (3, 0, 1)
    assert made.spools() == []


@pytest.mark.parametrize("kind", ["events", "index"])
def test_without_a_spool_one_hiccup_of_the_store_costs_no_step(make: Factory, kind: str) -> None:
    hiccups = iter([True])
    made = make(lambda key: key.startswith(kind) and next(hiccups, False), spool_bytes=0)
    for step in range(3):
        made.write(step)
    assert made.store.numbers() == [(number, None) for number in (1, 2, 3)]
    assert made.fates() == (3, 0, 0)


def test_a_step_that_no_spool_accepts_is_lost_and_counted(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    made = make(lambda _: True)
    monkeypatch.setattr("hook_layer.delivery.spool_folder.SpoolFolder.put_step", fail)
    made.write(0)
    assert made.fates() == (0, 0, 1)
    assert made.spools() == []


def test_numbers_that_were_used_elsewhere_are_counted_as_skipped(make: Factory) -> None:
    made = make()
    made.last_number = 2
    made.write(0)
    assert made.store.numbers() == [(3, 2)]


def test_without_a_spool_saving_continues_after_an_outage(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True
    made = make(lambda _: is_away, spool_bytes=0)
    for step in range(50):
        made.write(step)
    assert made.store.attempts == 6  # each of three steps twice
    assert caplog.text.count("in a row") == 1
    made.clock.now += 1
    made.write(50)
    assert made.store.attempts == 7
    is_away = False
    made.clock.now += 1.9
    made.write(51)
    assert made.store.attempts == 7
    made.clock.now += 0.1
    for step in range(52, 60):
        made.write(step)
    assert made.store.numbers() == [(53, 52)] + [(number, None) for number in range(54, 61)]
    assert made.fates() == (8, 0, 52)
    assert made.counters.errors == 4
    assert "no space" in (made.counters.first_error or "")
    assert caplog.text.count("works again; 0 steps wait on local disk, 52 steps were lost") == 1


# Index files in doubt ----------------------------------------------------------------------------


@pytest.mark.parametrize("spool_bytes", [0, 1 << 20])
def test_an_index_file_in_doubt_is_stored_again_before_the_next_step(
    make: Factory, spool_bytes: int
) -> None:
    failing = {INDEX_1}
    made = make(lambda key: key in failing, spool_bytes=spool_bytes)
    for step in range(2):
        made.write(step)
    assert made.counters.steps_undelivered == (0 if spool_bytes else 1)
    failing.clear()
    made.write(2)
    assert made.store.numbers() == [(1, None), (2, None), (3, None)]
    assert made.fates() == (3, 0, 0)


@pytest.mark.parametrize("spool_bytes", [0, 1 << 20])
def test_an_index_file_in_doubt_is_stored_again_at_the_end(make: Factory, spool_bytes: int) -> None:
    is_away = False
    made = make(lambda key: is_away and key.startswith("index"), spool_bytes=spool_bytes)
    made.write(0)
    is_away = True
    made.write(1)
    is_away = False
    made.end()
    assert made.store.numbers() == [(1, None), (2, None)]
    assert made.fates() == (2, 0, 0)


def test_an_index_file_that_is_never_taken_is_given_up_with_its_number(make: Factory) -> None:
    made = make(lambda key: key == INDEX_1, spool_bytes=0)
    for step in range(6):
        made.write(step)
        made.clock.now += 60
    assert made.store.numbers() == [(1, None), (5, 3), (6, None)]
    assert made.fates() == (3, 0, 3)


def test_what_was_lost_in_front_of_an_index_file_in_doubt_is_not_forgotten(make: Factory) -> None:
    failing = {"events/000000000000/000000000000_worker_0.tfevents"}
    made = make(lambda key: key in failing, spool_bytes=0)
    made.write(0)
    failing.add(INDEX_1)
    for step in range(1, 6):
        made.write(step)
        made.clock.now += 60
    assert made.store.numbers()[0] == (5, 4)


# Small files -------------------------------------------------------------------------------------


def test_a_role_that_may_not_remove_or_overwrite_saves_its_steps(make: Factory) -> None:
    made = make(lambda key: key == "job.json")

    def refuse() -> None:
        raise StorageError("403")

    for _ in range(5):
        made.delivery.files.housekeep("removing training_job_end.ts", refuse)
        made.delivery.files.put("job.json", b"{}")
    for step in range(3):
        made.write(step)
    assert made.store.numbers() == [(1, None), (2, None), (3, None)]
    assert (made.counters.errors, made.counters.first_error) == (0, None)
    assert made.counters.file_errors > 5


def test_small_files_are_tried_again_behind_a_step_and_before_the_end(make: Factory) -> None:
    is_away = True
    made = make(lambda key: is_away and key in {"job.json", "c.json"})
    files = made.delivery.files
    files.put("job.json", b"old")
    files.put("job.json", b"job")
    made.write(0)
    files.put("c.json", b"c")
    is_away = False
    made.end("1")
    assert made.store.order[-3:] == ["job.json", "c.json", "end"]
    assert (made.store.get("job.json"), made.store.get("end")) == (b"job", b"1")
    made.delivery.leave()
    assert made.counters.files_undelivered == 0


def test_the_last_file_is_stored_also_when_steps_were_lost(make: Factory) -> None:
    made = make(lambda key: key.startswith("events/"), spool_bytes=0)
    for step in range(5):
        made.write(step)
    made.delivery.files.put("collections.json", b"c")
    assert not list(made.store.list())
    made.end("5")
    assert list(made.store.list()) == ["collections.json", "end"]


def test_files_that_could_not_be_stored_are_counted(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(lambda key: key == "job.json")
    made.delivery.files.put("job.json", b"{}")
    made.end("")
    made.delivery.leave()
    assert made.counters.files_undelivered == 1
    assert sum("storing job.json" in record.message for record in caplog.records) == 1
    assert [path.name for path in made.spools()[0].glob("files/*")] == ["job.json"]


# Steps that cannot be encoded --------------------------------------------------------------------


class BrokenSnapshot(ArraySnapshot):
    def array(self) -> np.ndarray:
        raise RuntimeError("the device is gone")


class BrokenStatistics:
    def rows(self) -> np.ndarray:
        raise RuntimeError("the device is gone")


def test_a_tensor_that_cannot_be_encoded_costs_nothing_but_its_value(
    make: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    made = make()
    record = make_record(0)
    ragged = np.empty(2, dtype=object)
    ragged[:] = [[1, 2], [3]]
    one = np.ones(1, "f4")
    snapshot = ArraySnapshot(one)
    record.add(
        {
            "ragged": CapturedTensor("object", (2,), raw=ArraySnapshot(ragged)),
            "\ud800": CapturedTensor("float32", (1,), raw=snapshot),
            "gone": CapturedTensor("float32", (1,), raw=BrokenSnapshot(one)),
            "bare": CapturedTensor("float32", (1,), raw=snapshot, statistics=BrokenStatistics()),
        }
    )
    with caplog.at_level(logging.WARNING):
        made.write(record)
    (index,) = made.store.indexes()
    assert [row.name for row in index.locations] == ["w", "bare"]
    assert {row.name for row in index.shapes} == {"ragged", "gone"}
    assert (made.counters.tensors_left_out, made.counters.tensors_written) == (4, 4)
    assert len(caplog.records) == 1


def test_a_step_whose_encoding_fails_is_no_fault_of_the_store(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()

    def out_of_memory(_: StepRecord) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("hook_layer.delivery.step_delivery.encode_step", out_of_memory)
        for step in range(5):
            made.write(step)
    made.write(5)
    assert made.store.numbers() == [(6, 5)]
    assert made.fates() == (1, 0, 5)


def test_a_step_without_anything_to_store_is_lost_and_counted(make: Factory) -> None:
    made = make()
    made.write(StepRecord(0, ModeKeys.TRAIN, 0))
    made.write(1)
    assert made.store.numbers() == [(2, 1)]
    assert made.fates() == (1, 0, 1)
