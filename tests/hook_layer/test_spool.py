"""The command that delivers what a training left, and the folder that it reads."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hook_layer.configuration.hook_options import HookOptions
from hook_layer.delivery.spool_folder import SpoolFolder, SpoolInUseError, SpoolTarget, StepFiles
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer import StepWriter
from hook_layer.format.job_file import JobFile
from hook_layer.run.old_spools import report_old_spools
from hook_layer.spool import main
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.doubles import Switchable, make_record
from tests.hook_layer.tiny_hook import W, make_hook

RUN = "01JD0000000000000000000000"
JOB = JobFile(
    training_job_name="job", run_id=RUN, platform="local", started_at="2026-11-20T10:00:00Z"
).encode()


class Away(Switchable):
    """A store that is away, and whose URI is that of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda _: True)
        self.uri = LocalStore(folder).uri


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Return the spool of a training of five steps whose first number was lost."""
    store = Away(tmp_path / "run")
    options = HookOptions(spool_dir=str(tmp_path / "spools"))
    writer = StepWriter(store, RunIdentity(RUN, "/job:worker"), options=options)
    writer.put_file("job.json", JOB)
    writer.skip(1)
    for step in range(4):
        writer.submit(make_record(step))
    writer.put_file("training_job_end.ts", b"", is_last=True)
    assert not writer.wait_until_idle(10)
    writer.close(0.01)
    (folder,) = (tmp_path / "spools").iterdir()
    return folder


Numbers = list[tuple[int | None, int | None]]


def numbers(folder: Path) -> Numbers:
    indexes = WrittenTrial(str(folder)).indexes("/job:worker").values()
    return [(index.sequence, index.skipped) for index in indexes]


def run(*arguments: object) -> tuple[int, str]:
    out = io.StringIO()
    return main([str(argument) for argument in arguments], out), out.getvalue()


def test_the_command_delivers_all_and_leaves_nothing_behind(tmp_path: Path, spool: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hook_layer.spool", str(spool)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "delivered 4 steps and 1 files, and the end marker\n"
    assert numbers(tmp_path / "run") == [(2, 1), (3, None), (4, None), (5, None)]
    assert WrittenTrial(str(tmp_path / "run")).end_marker() is not None
    assert not spool.exists()


def test_what_fails_stays_and_the_command_can_be_given_again(tmp_path: Path, spool: Path) -> None:
    target = tmp_path / "run"
    (target / "index" / "000000000" / f"{2:012d}__job-worker.json" / "in the way").mkdir(
        parents=True
    )
    status, text = run(spool)
    assert status == 1
    assert text.startswith("delivered 2 steps and 1 files\nthe rest stays in")
    assert "there is a folder of this name; remove it" in text
    assert not (target / "training_job_end.ts").exists()
    shutil.rmtree(target / "index" / "000000000" / f"{2:012d}__job-worker.json")
    assert run(spool) == (0, "delivered 2 steps and 0 files, and the end marker\n")
    assert numbers(target) == [(2, 1), (3, None), (4, None), (5, None)]


def test_a_step_that_is_missing_in_the_spool_is_counted(tmp_path: Path, spool: Path) -> None:
    (spool / "steps" / f"{4:016d}.json").unlink()
    assert run(spool)[0] == 0
    assert numbers(tmp_path / "run") == [(2, 1), (3, None), (5, 1)]


def test_files_can_be_delivered_to_another_place(tmp_path: Path, spool: Path) -> None:
    assert run(spool, "--to", tmp_path / "elsewhere")[0] == 0
    assert len(numbers(tmp_path / "elsewhere")) == 4
    assert not (tmp_path / "run").exists()


def test_the_files_of_two_runs_are_not_mixed(tmp_path: Path, spool: Path) -> None:
    job = JOB.replace(RUN.encode(), b"01JD0000000000000000000001")
    LocalStore(tmp_path / "run").put("job.json", job)
    status, text = run(spool)
    assert status == 1
    assert "now holds the run 01JD0000000000000000000001" in text
    assert LocalStore(tmp_path / "run").get("job.json") == job
    assert run(spool, "--to", tmp_path / "elsewhere")[0] == 0


def test_a_folder_that_is_no_spool_is_left_alone(tmp_path: Path) -> None:
    status, text = run(tmp_path)
    assert (status, text) == (1, f"{tmp_path} is not a spool\n")
    (tmp_path / "target.json").write_text("{}")
    status, text = run(tmp_path)
    assert status == 1
    assert "uri" in text


def test_a_spool_that_a_living_process_holds_is_left_alone(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from hook_layer.delivery.spool_folder import SpoolFolder, SpoolTarget\n"
        f"spool = SpoolFolder.create({str(tmp_path)!r}, SpoolTarget('file:///x/', 'RUN', 'w'))\n"
        "print(spool.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        path = holder.stdout.readline().strip()
        with pytest.raises(SpoolInUseError, match="in use"):
            SpoolFolder.open(path)
        assert "in use" in run(path)[1]
        holder.kill()
    SpoolFolder.open(path).release()


def test_a_key_in_a_spool_cannot_lead_out_of_the_target(tmp_path: Path, spool: Path) -> None:
    index = spool / "steps" / f"{2:016d}.json"
    index.write_bytes(b"../../outside.json\n" + index.read_bytes().partition(b"\n")[2])
    status, text = run(spool)
    assert status == 1
    assert "not a key of a store" in text
    assert not (tmp_path / "outside.json").exists()


def test_the_name_of_a_spool_says_whose_it_is(tmp_path: Path) -> None:
    target = SpoolTarget(MemoryStore().uri, RUN, "/job:worker/task:0")
    spool = SpoolFolder.create(str(tmp_path), target)
    assert Path(spool.path).name.startswith(f"stepwatch-spool-{RUN}-_job_worker_task_0-")
    with pytest.raises(SpoolInUseError):
        SpoolFolder.open(spool.path)
    spool.release()
    assert SpoolFolder.open(spool.path).target == target
    assert spool.is_empty()


def test_where_there_are_no_locks_a_spool_is_made_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("hook_layer.process.file_lock.fcntl.flock", refuse)
    spool = SpoolFolder.create(str(tmp_path), SpoolTarget("file:///x/", RUN, "w"))
    assert SpoolFolder.open(spool.path).target.run_id == RUN


def test_a_spool_of_another_user_is_left_to_that_user(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = spool.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    status, text = run(spool)
    assert (status, f"belongs to the user {owner}" in text) == (1, True)


@pytest.mark.parametrize("name", ["target.json", "steps", f"steps/{2:016d}.tfevents", "files"])
def test_links_in_a_spool_are_not_followed(tmp_path: Path, spool: Path, name: str) -> None:
    outside = (spool / name).rename(tmp_path / "outside")
    (spool / name).symlink_to(outside)
    status, text = run(spool)
    assert status == 1
    assert "links are not followed" in text
    assert outside.exists()


def test_what_is_no_file_in_a_spool_is_not_waited_for(spool: Path) -> None:
    event_file = spool / "steps" / f"{2:016d}.tfevents"
    event_file.unlink()
    os.mkfifo(event_file)
    assert "not a plain file" in run(spool)[1]


def test_a_spool_of_a_killed_run_is_reported_by_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parent, target = tmp_path / "spools", SpoolTarget("file:///x/", RUN, "worker_0")
    others = [replace(target, uri="file:///y/"), replace(target, worker="worker_1"), target]
    for made in [SpoolFolder.create(str(parent), other) for other in others]:
        if made.target != target:
            made.put_file("job.json", JOB)
        made.release()
    held = SpoolFolder.create(str(parent), target)
    held.put_file("job.json", JOB)
    (parent / "stepwatch-spool-other").write_text("no folder")
    report_old_spools(replace(target, run_id="NEXT"), str(parent))
    assert caplog.text == ""
    held.release()
    report_old_spools(replace(target, run_id="NEXT"), str(parent))
    assert caplog.text.count("python -m hook_layer.spool") == 1
    assert f"python -m hook_layer.spool {held.path}" in caplog.text
    SpoolFolder.open(held.path).release()


def test_a_hook_looks_for_old_spools_as_it_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = WrittenTrial(str(tmp_path / "run"))
    old = SpoolFolder.create(None, SpoolTarget(trial.store.uri, RUN, "worker_0"))
    old.put_file("job.json", JOB)
    old.release()
    hook = make_hook(trial)
    hook.train(W)
    hook.close()
    assert f"python -m hook_layer.spool {old.path}" in caplog.text
    assert hook.report().is_complete


# A training that was resumed since ---------------------------------------------------------------


def resume(folder: Path, start: tuple[int, int], steps: range) -> Numbers:
    """Go on in a folder behind a number, with some that are lost, and return what is there."""
    sequence, num_lost = start
    writer = StepWriter(LocalStore(folder), RunIdentity(RUN, "/job:worker"), sequence=sequence)
    writer.put_file("job.json", JOB.replace(b"10:00", b"11:00"))
    writer.put_file("collections/000000000/job-worker_collections.json", b"newer")
    writer.skip(num_lost)
    for step in steps:
        writer.submit(make_record(step, 8000))
    assert writer.close(10)
    return numbers(folder)


@pytest.mark.parametrize(
    ("start", "steps", "num_delivered"),
    [
        ((1, 5), range(3, 6), 0),  # at a later checkpoint: numbers 1 to 5 are given up
        ((1, 0), range(2), 0),  # from the beginning, and not far yet
        ((5, 0), range(3, 6), 3),  # the same step under the same number
        ((5, 0), range(2, 5), 2),  # another step under a number that is in the spool
    ],
)
def test_steps_of_a_training_that_was_resumed_are_not_overwritten(
    tmp_path: Path, spool: Path, start: tuple[int, int], steps: range, num_delivered: int
) -> None:
    target = tmp_path / "run"
    before = resume(target, start, steps)
    newer = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    status, text = run(spool)
    left = 4 - num_delivered
    assert status == 1
    assert f"delivered {num_delivered} steps and 0 files\n" in text
    assert f"{left} steps and 1 files are not delivered and stay in {spool}" in text
    assert all(path.read_bytes() == content for path, content in newer.items())
    assert numbers(target)[num_delivered:] == before
    assert not (target / "training_job_end.ts").exists()
    assert run(spool, "--to", tmp_path / "elsewhere")[0] == 0
    assert len(numbers(tmp_path / "elsewhere")) == left
    assert not spool.exists()


def test_a_step_whose_index_file_was_stored_before_is_delivered(
    tmp_path: Path, spool: Path
) -> None:
    run(spool, "--to", tmp_path / "elsewhere")
    again = SpoolFolder.create(str(tmp_path), SpoolTarget("file:///x/", RUN, "/job:worker"))
    store = LocalStore(tmp_path / "elsewhere")
    for number, key in enumerate(sorted(store.list("index/")), 2):
        again.put_step(number, StepFiles(None, key, store.get(key)), None)
    again.release()
    assert run(again.path, "--to", tmp_path / "elsewhere")[0] == 0
    assert numbers(tmp_path / "elsewhere") == [(2, 1), (3, None), (4, None), (5, None)]
