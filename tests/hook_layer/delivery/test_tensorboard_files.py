"""The real TensorBoard reads the files while they are written, and after faults."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from numpy.typing import NDArray

from hook_layer.capture.captured_step import ArraySnapshot
from hook_layer.delivery.tensorboard import TensorBoardExporter
from hook_layer.storage.base import Buffers, StorageError
from hook_layer.storage.local import LocalStore
from hook_layer.storage.s3 import S3Store
from tests.hook_layer.board import SCALAR, WEIGHTS, files, read, step, steps_of, tensor
from tests.hook_layer.doubles import Clock, Switchable

directory_watcher = pytest.importorskip("tensorboard.backend.event_processing.directory_watcher")
event_file_loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
io_wrapper = pytest.importorskip("tensorboard.backend.event_processing.io_wrapper")


# While it is written -----------------------------------------------------------------------------


def test_a_reader_sees_every_step_as_soon_as_it_is_exported(tmp_path: Path) -> None:
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    exporter(step(0))
    accumulator = read(tmp_path / "TRAIN")
    for number in range(1, 30):
        exporter(step(number))
        accumulator.Reload()
        assert steps_of(accumulator) == list(range(number + 1))


def test_the_directory_watcher_finds_nothing_out_of_order(tmp_path: Path) -> None:
    clock = Clock()
    exporter = TensorBoardExporter(WholeObjects(tmp_path), clock=clock)
    exporter(step(0))
    watcher = directory_watcher.DirectoryWatcher(
        str(tmp_path / "TRAIN"),
        event_file_loader.LegacyEventFileLoader,
        io_wrapper.IsTensorFlowEventsFile,
    )
    seen: list[int] = []
    for number in range(1, 40):
        seen += [event.step for event in watcher.Load() if event.summary.value]
        clock.now += 4
        exporter(step(number))
    exporter.close()
    seen += [event.step for event in watcher.Load() if event.summary.value]
    assert seen == list(range(40))
    assert not watcher.OutOfOrderWritesDetected()


def test_a_resumed_run_replaces_the_steps_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 9)
    interrupted = TensorBoardExporter(LocalStore(tmp_path))
    for number in range(6):
        interrupted(step(number))
    monkeypatch.setattr("os.getpid", lambda: 1)
    resumed = TensorBoardExporter(LocalStore(tmp_path))
    for number in range(4, 8):
        value = tensor(np.float32(-number), SCALAR)
        resumed(step(number, {"loss": value}))
    events = read(tmp_path / "TRAIN").Scalars("loss")
    assert [event.step for event in events] == list(range(8))
    assert [event.value for event in events[4:]] == [-4, -5, -6, -7]


def test_two_exporters_of_one_process_write_different_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 5)
    monkeypatch.setattr("socket.gethostname", lambda: "node/3")
    for _ in range(2):
        TensorBoardExporter(LocalStore(tmp_path))(step(0))
    assert files(tmp_path) == [
        "000000000000_5_node_3-2.tfevents",
        "000000000000_5_node_3.tfevents",
    ]


# Stores that cannot append -----------------------------------------------------------------------


class WholeObjects:
    """A folder that cannot append."""

    def __init__(self, path: Path) -> None:
        self._store = LocalStore(path)

    def __getattr__(self, name: str) -> Any:
        if name == "append":
            raise AttributeError(name)
        return getattr(self._store, name)


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    server.stop()


def test_s3_gets_whole_files_that_tensorboard_reads(
    tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.delivery.tensorboard._writer_name", lambda *_: "5_h")
    s3.create_bucket(Bucket="summaries")
    store = S3Store("s3://summaries/mnist-7/tensorboard-output", client=s3)
    clock = Clock()
    exporter = TensorBoardExporter(store, clock=clock)
    values = np.linspace(-1, 1, 100)
    for number in range(11):
        loss, weights = tensor(np.float32(number), SCALAR), tensor(values * number, WEIGHTS)
        exporter(step(number, {"loss": loss, "w": weights}))
        clock.now += 4
    before = list(store.list())
    exporter.close()
    names = [f"TRAIN/{first:012d}_5_h.tfevents" for first in (0, 1, 4, 7, 10)]
    assert (before, list(store.list())) == (names[:-1], names)
    for key in names:
        path = tmp_path / key
        path.parent.mkdir(exist_ok=True)
        s3.download_file(store.bucket, store.prefix + key, str(path))
    accumulator = read(tmp_path / "TRAIN")
    assert [(e.step, e.value) for e in accumulator.Scalars("loss")] == [(n, n) for n in range(11)]
    assert [e.step for e in accumulator.Histograms("weights/w")] == list(range(11))


@pytest.mark.parametrize(("hours", "most"), [(1, 200), (10, 320), (100, 440)])
def test_a_long_run_stays_within_few_files(hours: int, most: int) -> None:
    clock, store = Clock(), Switchable()
    exporter = TensorBoardExporter(store, clock=clock)
    pauses = []
    for number in range(hours * 720):
        clock.now += 5
        before = len(store.order)
        exporter(step(number))
        pauses.append(clock.now if len(store.order) > before else None)
    assert len(store.order) < most
    put_at = [at for at in pauses if at is not None]
    assert max(np.diff(put_at)) <= max(15, 0.02 * hours * 3600 + 5)


def test_much_data_is_not_kept_in_memory_until_the_pause_is_over() -> None:
    store = Switchable()
    exporter = TensorBoardExporter(store, clock=Clock())
    wide = {f"w{i}": tensor(10.0 ** np.arange(-12, 19, 0.04), WEIGHTS) for i in range(300)}
    for number in range(10):
        exporter(step(number, wide))
    assert len(store.order) > 1
    assert sum(run.waiting_bytes for run in exporter._runs.values()) < 8 << 20


# Faults ------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_tried_rarely_and_gets_everything_later(tmp_path: Path) -> None:
    clock = Clock()
    is_away = True
    store = Switchable(lambda _: is_away)
    exporter = TensorBoardExporter(store, clock=clock)
    with pytest.raises(StorageError):
        exporter(step(0))
    for number in range(1, 25):
        clock.now += 1
        exporter(step(number))
    assert store.attempts == 1
    is_away = False
    clock.now += 30
    exporter(step(25))
    for key in store.list():
        LocalStore(tmp_path).put(key, store.get(key))
    assert steps_of(read(tmp_path / "TRAIN")) == list(range(26))


def test_memory_is_bounded_while_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    exporter = TensorBoardExporter(Switchable(lambda _: True), clock=clock)
    wide = {f"w{i}": tensor(10.0 ** np.arange(-12, 19, 0.04), WEIGHTS) for i in range(800)}
    with caplog.at_level(logging.WARNING):
        for number in range(8):
            try:
                exporter(step(number, wide))
            except StorageError:
                assert number == 0
        assert sum(run.waiting_bytes for run in exporter._runs.values()) <= 32 << 20
        assert exporter.steps_lost > 0
        with pytest.raises(StorageError):
            exporter.close()
    assert "will lack steps from" in caplog.text
    assert f"lacks {exporter.steps_lost} steps" in caplog.text


def test_a_tensor_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    class Broken(ArraySnapshot):
        def array(self) -> NDArray[Any]:
            raise RuntimeError("gone")

    broken = tensor(np.ones(3), WEIGHTS)
    broken.shown = Broken(np.ones(3))
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    with pytest.raises(RuntimeError, match="gone"):
        exporter(step(0, {"bad": broken, "loss": tensor(np.float32(1), SCALAR)}))
    assert steps_of(read(tmp_path / "TRAIN")) == [0]


def test_a_full_disk_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    class Full(LocalStore):
        is_full = False

        def append(self, key: str, data: Buffers, size: int) -> None:
            if not self.is_full:
                super().append(key, data, size)
                return
            with pytest.raises(ZeroDivisionError):
                super().append(key, Torn(data), size)
            raise StorageError("no space")

    clock, store = Clock(), Full(tmp_path)
    exporter = TensorBoardExporter(store, clock=clock)
    exporter(step(0))
    exporter(step(1))
    accumulator = read(tmp_path / "TRAIN")
    store.is_full = True
    with pytest.raises(StorageError):
        exporter(step(2))
    store.is_full = False
    clock.now += 60
    exporter(step(3))
    assert steps_of(accumulator.Reload()) == [0, 1, 2, 3]
    assert steps_of(read(tmp_path / "TRAIN")) == [0, 1, 2, 3]


class Torn:
    """Content that ends with an error after its first part."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield bytes(next(iter(self._data)))[:10]
        raise ZeroDivisionError


def test_a_folder_that_is_removed_begins_anew(tmp_path: Path) -> None:
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    exporter(step(0))
    (name,) = files(tmp_path)
    (tmp_path / "TRAIN" / name).unlink()
    (tmp_path / "TRAIN").rmdir()
    exporter(step(1))
    exporter(step(2))
    assert steps_of(read(tmp_path / "TRAIN")) == [1, 2]
    assert re.match("000000000001_", files(tmp_path)[0])
