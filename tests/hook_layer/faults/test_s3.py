"""S3 that throttles, breaks, keeps silent or refuses neither hangs nor breaks training."""

from __future__ import annotations

import io
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from hook_layer.spool import main as deliver_spool
from hook_layer.storage import s3
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.faults.faulty_s3 import FaultyS3, Mood
from tests.hook_layer.faults.training import local_copy, stored_steps, train
from tests.hook_layer.tiny_hook import TinyHook, make_hook

STEP_BYTES = 20_000
NUM_STEPS = 9
_numbers = itertools.count()


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, int]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def server(moto: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Return a server that all clients made now use; they try twice, and wait not for long."""
    server = FaultyS3(*moto)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(s3, "_MAX_ATTEMPTS", 1)
    monkeypatch.setattr(s3, "_READ_TIMEOUT_S", 1)
    yield server
    server.close()


def new_bucket(*, exists: bool = True) -> str:
    bucket = f"bucket-{next(_numbers)}"
    if exists:
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)
    return bucket


def hook_for(uri: str, spools: Path, **options: Any) -> TinyHook:
    return make_hook(WrittenTrial(uri), spool_dir=str(spools), **options)


@pytest.mark.parametrize("mood", ["throttling", "broken", "silent"])
def test_steps_of_an_outage_arrive_later_in_order(
    server: FaultyS3, tmp_path: Path, mood: Mood
) -> None:
    uri = f"s3://{new_bucket()}/run"
    hook = hook_for(uri, tmp_path)

    def change(step: int) -> None:
        if step == 2:
            assert hook.flush(10)
            server.mood = mood
        elif step == 7:
            assert not hook.flush(10)

    def recover() -> None:
        server.mood = "fine"
        server.woken.set()

    outcome = train(hook, NUM_STEPS, [STEP_BYTES], before_step=change, end=recover)
    assert outcome.longest_step_s < 1
    assert outcome.close_s < 10
    assert stored_steps(uri) == list(range(NUM_STEPS))
    keys = [path for path in server.stored if "/index/" in path]
    assert keys == sorted(keys)
    assert len(set(keys)) == NUM_STEPS
    trial = local_copy(uri)
    assert [index.skipped for index in trial.indexes().values()] == [None] * NUM_STEPS
    assert trial.end_marker() is not None
    report = hook.report()
    assert report.is_complete
    assert report.writer.steps_spooled >= 5
    assert list(tmp_path.iterdir()) == []


def test_training_continues_through_an_outage(server: FaultyS3, tmp_path: Path) -> None:
    """Of a second; of any other time by STEPWATCH_OUTAGE_S=30."""
    outage_s = float(os.environ.get("STEPWATCH_OUTAGE_S", "1"))
    uri, num_steps = f"s3://{new_bucket()}/run", 60
    hook = hook_for(uri, tmp_path)

    def pass_time(step: int) -> None:
        if step == 10:
            assert hook.flush(10)
        server.mood = "throttling" if 10 <= step < 50 else "fine"
        if server.mood == "throttling":
            time.sleep(outage_s / 40)

    outcome = train(hook, num_steps, [STEP_BYTES], before_step=pass_time)
    print(f"{server.refused} requests refused in {outage_s:g} s; {outcome}\n{hook.report()}")
    assert server.refused > 0
    assert outcome.longest_step_s < 1
    assert stored_steps(uri) == list(range(num_steps))
    indexes = local_copy(uri).indexes().values()
    assert [(i.sequence, i.skipped) for i in indexes] == [(n + 1, None) for n in range(num_steps)]
    assert local_copy(uri).end_marker() is not None
    assert hook.report().is_complete
    assert hook.report().writer.steps_spooled >= 38
    assert list(tmp_path.iterdir()) == []


def test_an_outage_that_does_not_end_leaves_a_spool_that_one_command_delivers(
    server: FaultyS3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"s3://{new_bucket()}/run"
    server.mood = "throttling"
    hook = hook_for(uri, tmp_path, close_timeout_s=0.5)
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    assert outcome.longest_step_s < 1
    assert outcome.close_s < 3
    assert hook.report().writer.steps_in_spool == NUM_STEPS
    (spool,) = tmp_path.iterdir()
    assert f"{NUM_STEPS} steps and 4 other files of {uri}/ could not be delivered" in caplog.text
    assert f"python -m hook_layer.spool {spool}" in caplog.text
    assert deliver_spool([str(spool)], io.StringIO()) == 1
    server.mood = "fine"
    out = io.StringIO()
    assert deliver_spool([str(spool)], out) == 0
    assert out.getvalue() == f"delivered {NUM_STEPS} steps and 3 files, and the end marker\n"
    assert stored_steps(uri) == list(range(NUM_STEPS))
    trial = local_copy(uri)
    assert trial.job().run_id == trial.indexes()[0].run
    assert trial.end_marker() is not None
    assert trial.collections().collections["mine"].tensor_names == ("w",)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_bucket_is_reported_at_once_with_what_to_do(
    server: FaultyS3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = new_bucket(exists=False)
    hook = hook_for(f"s3://{bucket}/run", tmp_path)
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    assert outcome.longest_step_s < 1
    assert outcome.close_s < 3
    first = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert "the storage refuses to save" in first.message
    assert f"aws s3 mb s3://{bucket}" in first.message
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)
    (spool,) = tmp_path.iterdir()
    assert deliver_spool([str(spool)], io.StringIO()) == 0
    assert stored_steps(f"s3://{bucket}/run") == list(range(NUM_STEPS))


def test_a_bucket_that_is_made_meanwhile_is_used(server: FaultyS3, tmp_path: Path) -> None:
    bucket = new_bucket(exists=False)
    hook = hook_for(f"s3://{bucket}/run", tmp_path)

    def create() -> None:
        hook.flush(10)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)

    train(hook, NUM_STEPS, [STEP_BYTES], end=create)
    assert stored_steps(f"s3://{bucket}/run") == list(range(NUM_STEPS))
    assert hook.report().is_complete
    assert list(tmp_path.iterdir()) == []


def test_missing_rights_are_named(server: FaultyS3, tmp_path: Path) -> None:
    bucket = new_bucket()
    server.mood = "forbidden"
    hook = hook_for(f"s3://{bucket}/run", tmp_path)
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    assert outcome.longest_step_s < 1
    assert outcome.close_s < 3
    report = hook.report().writer
    assert report.steps_in_spool == NUM_STEPS
    assert f"allow s3:PutObject on arn:aws:s3:::{bucket}/run/events/" in str(report.first_error)


def test_a_server_that_keeps_silent_does_not_fill_the_memory(
    server: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.delivery.writer_threads._STUCK_S", 0.2)
    monkeypatch.setattr(s3, "_READ_TIMEOUT_S", 30)
    uri = f"s3://{new_bucket()}/run"
    server.mood = "silent"
    hook = hook_for(uri, tmp_path, queue_bytes=4 * STEP_BYTES, close_timeout_s=0.2)
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    assert outcome.longest_step_s < 3
    assert outcome.close_s < 3
    assert hook.report().writer.steps_in_spool == NUM_STEPS
    assert hook.report().writer.steps_dropped == 0


def test_many_threads_may_store_in_one_bucket(server: FaultyS3, tmp_path: Path) -> None:
    uri = f"s3://{new_bucket()}/run"
    client = boto3.client("s3", region_name="us-east-1", config=Config(max_pool_connections=4))
    store = s3.S3Store(uri, client)
    threads = [
        threading.Thread(target=store.put, args=(f"index/{n}", str(n).encode())) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [store.get(key) for key in store.list()] == [str(n).encode() for n in range(8)]
