"""One writer for a folder: with real processes."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hook_layer.delivery.writer import StepWriter
from hook_layer.process.process_end import ProcessEnd
from hook_layer.run.folder_claim import CLAIM_FILE, FolderClaim
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import W, make_hook

ROOT = Path(__file__).parents[3]
HOLDER = """
import select
import sys
sys.path.insert(0, {root!r})
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook
hook = make_hook(WrittenTrial(sys.argv[1]))
hook.train(W)
hook.flush()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:  # so that signals are handled
    pass
hook.train(W)
"""


@pytest.fixture
def out_dir(tmp_path: Path) -> Path:
    return tmp_path / "trial"


@pytest.fixture
def holder(out_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to the folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(root=str(ROOT)), str(out_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def train(out_dir: Path, steps: int = 3, **options: Any) -> dict[str, int]:
    """Train with a hook on the folder, and return its errors."""
    hook = make_hook(WrittenTrial(str(out_dir)), **options)
    for _ in range(steps):
        hook.train(W)
    hook.close()
    assert hook.step == steps - 1
    return dict(hook.report().errors)


def test_the_second_process_saves_beside_the_first(
    out_dir: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    trial = WrittenTrial(str(out_dir))
    before = {path: path.stat().st_mtime_ns for path in out_dir.rglob("*")}
    assert train(out_dir) == {}
    assert train(out_dir) == {}
    assert {path: path.stat().st_mtime_ns for path in out_dir.rglob("*")} == before
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert f"is in use by process {holder.pid} on" in warnings[0].message
    assert f"so this hook writes to {out_dir.as_uri()}-2/" in warnings[0].message
    for number in (2, 3):
        assert len(WrittenTrial(f"{out_dir}-{number}").indexes()) == 3

    holder.communicate("\n", timeout=20)
    assert holder.returncode == 0
    assert list(trial.indexes()) == [0, 1]
    assert not (out_dir / CLAIM_FILE).exists()
    assert train(out_dir) == {}


def test_workers_save_where_the_first_one_does(out_dir: Path) -> None:
    trial = WrittenTrial(str(out_dir))
    holder = FolderClaim(LocalStore(out_dir))
    assert holder.take() is None
    chief = make_hook(trial, size=2)
    chief.train(W)
    other = make_hook(trial, size=2, workers=FixedWorkers(1, 2, chief.session.chief_start()))
    other.train(W)
    for hook in (chief, other):
        hook.close()
    holder.release()
    beside = WrittenTrial(f"{out_dir}-2")
    for worker in ("worker_0", "worker_1"):
        assert not trial.indexes(worker)
        assert list(beside.indexes(worker)) == [0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_was_killed_leaves_no_claim(
    out_dir: Path, holder: subprocess.Popen[str], number: signal.Signals
) -> None:
    holder.send_signal(number)
    assert holder.wait(20) == -number
    assert train(out_dir) == {}
    assert len(WrittenTrial(str(out_dir)).indexes()) == 3
    assert not (out_dir / CLAIM_FILE).exists()


def test_a_newer_hook_of_the_process_takes_the_place_of_the_first(
    out_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_hook(WrittenTrial(str(out_dir)))
    first.train(W)
    assert first.session.trial is not None
    run_id = first.session.trial.identity.run_id
    assert train(out_dir) == {}
    assert "a newer hook of this process" in caplog.text
    assert not first.is_active
    first.train(W)  # what is left of it does no harm
    first.close()
    trial = WrittenTrial(str(out_dir))
    assert list(trial.indexes()) == [0, 1, 2]
    assert {index.run for index in trial.indexes().values()} == {trial.job().run_id}
    marker = trial.end_marker()
    assert marker is not None
    assert marker.run_id == trial.job().run_id != run_id


def test_a_newer_hook_gets_the_folder_by_any_name(out_dir: Path, tmp_path: Path) -> None:
    first = make_hook(WrittenTrial(str(out_dir)))
    first.train(W)
    (tmp_path / "link").symlink_to(out_dir)
    assert train(tmp_path / "link") == {}
    assert not first.is_active


def test_a_newer_hook_takes_the_place_of_the_first_in_a_store_elsewhere(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make_hook(trial), make_hook(trial)
    first.train(W)
    second.train(W)
    assert not first.is_active
    assert f"a newer hook of this process writes to {trial.store.uri}" in caplog.text
    second.close()
    first.close()
    marker = trial.end_marker()
    assert marker is not None
    assert marker.run_id == trial.job().run_id


def test_a_hook_that_is_gone_leaves_the_folder_to_the_next(out_dir: Path) -> None:
    first = make_hook(WrittenTrial(str(out_dir)))
    first.train(W)
    assert first.session.trial is not None
    run_id, process_end = first.session.trial.identity.run_id, first._process_end
    assert process_end is not None
    del first
    assert train(out_dir, steps=2) == {}
    trial = WrittenTrial(str(out_dir))
    process_end.run()  # what the first one left must not spoil it
    process_end.cancel()
    assert {index.run for index in trial.indexes().values()} == {trial.job().run_id}
    marker = trial.end_marker()
    assert marker is not None
    assert marker.run_id == trial.job().run_id != run_id


def test_what_a_gone_hook_has_on_its_way_arrives_before_the_next_run_begins(
    out_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    put, wait = LocalStore.put, StepWriter.wait_until_idle

    def slow_put(store: LocalStore, key: str, data: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert gate.wait(60)
        put(store, key, data)

    def opening_wait(writer: StepWriter, timeout_s: float | None = None) -> bool:
        gate.set()
        return wait(writer, timeout_s)

    monkeypatch.setattr(LocalStore, "put", slow_put)
    monkeypatch.setattr(StepWriter, "wait_until_idle", opening_wait)
    first = make_hook(WrittenTrial(str(out_dir)))
    for _ in range(3):
        first.train(W)
    process_end = first._process_end
    assert process_end is not None
    process_end.cancel()
    del first
    assert not gate.is_set()  # who dies does not wait
    assert train(out_dir) == {}
    assert gate.is_set()
    trial = WrittenTrial(str(out_dir))
    assert list(trial.indexes()) == [0, 1, 2]
    assert {index.run for index in trial.indexes().values()} == {trial.job().run_id}


def test_of_a_gone_hook_nothing_stays_once_all_has_arrived(out_dir: Path) -> None:
    hook = make_hook(WrittenTrial(str(out_dir)))
    hook.train(W)
    assert hook.session.trial is not None
    writer = weakref.ref(hook.session.trial.writer)
    del hook
    assert writer() is not None
    ProcessEnd.finish_left()
    gc.collect()
    assert writer() is None


def test_a_child_does_not_keep_the_claim(out_dir: Path) -> None:
    claim = FolderClaim(LocalStore(out_dir))
    assert claim.take() is None
    assert claim.take() is None
    begun, end = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # lives until the pipe closes
        os.write(begun[1], b"x")
        os.close(end[1])
        os.read(end[0], 1)
        os._exit(0)
    os.read(begun[0], 1)
    # As the kernel does when the process dies: its descriptor is closed, and nothing else happens.
    assert claim._lock is not None
    claim._lock.release()
    other = FolderClaim(LocalStore(out_dir))
    assert other.take() is None
    other.release()
    os.close(end[1])
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (*begun, end[0]):
        os.close(descriptor)


def test_a_claim_that_was_removed_meanwhile_is_made_anew(
    out_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (FolderClaim(LocalStore(out_dir)) for _ in range(3))
    assert first.take() is None
    real, opened = os.open, []

    def open_late(path: str, *arguments: Any) -> int:
        descriptor = real(path, *arguments)
        if not opened:
            first.release()  # between the second one's opening and locking of the file
        opened.append(path)
        return descriptor

    monkeypatch.setattr("hook_layer.run.folder_claim.os.open", open_late)
    assert second.take() is None
    assert len(opened) == 2
    assert third.take() is not None
    second.release()


def test_without_locks_every_process_writes(
    out_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    assert FolderClaim(MemoryStore()).take() is None
    (tmp_path / "file").write_text("")
    assert FolderClaim(LocalStore(tmp_path / "file")).take() is None
    monkeypatch.setattr("hook_layer.process.file_lock.fcntl.flock", no_locks)
    claims = [FolderClaim(LocalStore(out_dir)) for _ in range(2)]
    assert [claim.take() for claim in claims] == [None, None]
    for claim in claims:
        claim.release()
    monkeypatch.setattr("hook_layer.run.folder_claim.HAS_LOCKS", False)
    assert FolderClaim(LocalStore(out_dir)).take() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"pid": "x", "host": 3}'])
def test_a_claim_may_hold_anything(out_dir: Path, content: bytes) -> None:
    first, second = (FolderClaim(LocalStore(out_dir)) for _ in range(2))
    assert first.take() is None
    (out_dir / CLAIM_FILE).write_bytes(content)
    assert second.take() == "another process"
    first.release()
    first.release()
