"""Resuming: at which step, in which run and with which numbers a run continues."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from moto import mock_aws

from hook_layer.configuration.job import CheckpointConfig, JobEnvironment
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.format.index import IndexFile
from hook_layer.format.job_file import StopFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE, index_key
from hook_layer.process.termination import HANDLERS
from hook_layer.resuming.checkpoint import CheckpointKeeper, Progress, RunStart
from hook_layer.resuming.checkpoint_state import STATE_FILE, SavedState, encode_states, parse_states
from hook_layer.storage.base import StorageError, open_store
from hook_layer.storage.memory import MemoryStore
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.doubles import Clock
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import TinyHook, make_hook

SAGEMAKER = JobEnvironment("job-1", "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints"
    path.mkdir()
    return path


def train(hook: TinyHook, first: int, last: int, folder: Path, saved: tuple[int, ...] = ()) -> None:
    """Train the steps from `first` to `last`, and save checkpoints behind some."""
    for step in range(first, last + 1):
        hook.train({"w": np.full(2, step, "f4")})
        if step in saved:
            (folder / f"{step}.pt").write_bytes(b"x" * (step + 1))


def kill(hook: TinyHook) -> None:
    """Leave of a hook what is left when its process is killed."""
    hook.flush()
    hook.state.is_closed = True
    assert hook._process_end is not None
    hook._process_end.cancel()
    for handler in HANDLERS:
        handler.remove(hook)
    hook.session.place.end("Killed")


def states(folder: Path) -> list[SavedState]:
    return parse_states((folder / STATE_FILE).read_bytes(), file=STATE_FILE)


def numbers(indexes: dict[int, IndexFile]) -> list[tuple[int, int | None]]:
    """Return step and number of each index file."""
    return [(step, index.sequence) for step, index in sorted(indexes.items())]


def resumable(trial: WrittenTrial, folder: Path, **options: object) -> TinyHook:
    hook = make_hook(trial, checkpoint=CheckpointConfig(folder), **options)
    hook.set_mode(ModeKeys.TRAIN)
    return hook


# One interruption --------------------------------------------------------------------------------


def test_a_run_continues_after_its_last_checkpoint(trial: WrittenTrial, folder: Path) -> None:
    first = resumable(trial, folder)
    train(first, 0, 7, folder, saved=(2, 4))
    assert first.training_run == 0
    kill(first)
    run_id, started_at = trial.job().run_id, trial.job().started_at
    assert [(s.step, s.saved_step, s.mode_steps) for s in states(folder)] == [
        (2, 2, {"GLOBAL": 2, "TRAIN": 2}),
        (4, 4, {"GLOBAL": 4, "TRAIN": 4}),
    ]

    second = resumable(trial, folder)
    train(second, 5, 9, folder)
    assert (second.training_run, second.report().steps_seen) == (1, 5)
    second.close()
    assert (trial.job().run_id, trial.job().started_at) == (run_id, started_at)
    indexes = trial.indexes()
    assert numbers(indexes) == [(step, step + 1) for step in range(10)]
    assert {index.run for index in indexes.values()} == {run_id}
    assert [trial.records(step)["w"].mode_step for step in range(10)] == list(range(10))
    marker = trial.end_marker()
    assert marker is not None
    assert (marker.run_id, marker.sequences) == (run_id, {"worker_0": 10})


def test_modes_and_left_out_steps(trial: WrittenTrial, folder: Path) -> None:
    def make() -> TinyHook:
        return resumable(trial, folder, save_config=SaveConfig(save_interval=3))

    first = make()
    train(first, 0, 3, folder)
    first.set_mode(ModeKeys.EVAL)
    train(first, 0, 1, folder)
    first.set_mode(ModeKeys.TRAIN)
    train(first, 4, 7, folder, saved=(4,))
    kill(first)
    (state,) = states(folder)
    assert state.mode_steps == {"GLOBAL": 6, "TRAIN": 4, "EVAL": 1}
    assert (state.step, state.saved_step) == (6, 4)  # train 0 3, then eval 0
    assert state.run is not None
    assert state.run.sequence == 3

    second = make()
    train(second, 5, 8, folder)
    second.set_mode(ModeKeys.EVAL)
    train(second, 2, 3, folder)
    second.close()
    found = {(i.mode.name, i.mode_step): (s, i.sequence) for s, i in trial.indexes().items()}
    assert found == {
        ("TRAIN", 0): (0, 1),
        ("TRAIN", 3): (3, 2),
        ("EVAL", 0): (4, 3),
        ("TRAIN", 6): (8, 4),
        ("EVAL", 3): (12, 5),
    }


def test_a_checkpoint_that_is_overwritten_in_place(trial: WrittenTrial, folder: Path) -> None:
    first = resumable(trial, folder)
    for step in range(6):
        train(first, step, step, folder)
        if step in (1, 3):
            (folder / "last.pt").write_bytes(b"x" * 100)
            os.utime(folder / "last.pt", ns=(0, step))
    kill(first)
    second = resumable(trial, folder)
    train(second, 4, 5, folder)
    assert second.step == 5
    second.close()
    assert numbers(trial.indexes()) == [(step, step + 1) for step in range(6)]


def test_each_resume_is_counted_even_if_no_checkpoint_follows(
    trial: WrittenTrial, folder: Path
) -> None:
    for run in range(4):
        hook = resumable(trial, folder)
        train(hook, 0 if not run else 2, 4, folder, saved=() if run else (1,))
        assert (hook.training_run, hook.step) == (run, 4)
        assert hook.report().training_run == run
        kill(hook)
    assert [state.training_run for state in states(folder)] == [0, 1, 2, 3]


def test_the_state_belongs_to_the_checkpoints_that_are_there(
    trial: WrittenTrial, folder: Path
) -> None:
    first = resumable(trial, folder)
    train(first, 0, 7, folder, saved=(2, 4))
    kill(first)
    (folder / "4.pt").unlink()  # it did not reach the other machine
    second = resumable(trial, folder)
    train(second, 3, 4, folder, saved=(4,))
    train(second, 5, 5, folder)
    assert second.step == 5
    kill(second)
    assert [(s.step, s.training_run) for s in states(folder)] == [(2, 0), (2, 1), (4, 1)]


def test_a_checkpoint_that_no_state_knows_is_said(
    trial: WrittenTrial, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = resumable(trial, folder)
    train(first, 0, 4, folder, saved=(2, 4))  # killed before the next step begins
    kill(first)
    assert [state.step for state in states(folder)] == [2]
    later = (folder / STATE_FILE).stat().st_mtime_ns + 10**9
    os.utime(folder / "4.pt", ns=(later, later))
    second = resumable(trial, folder)
    train(second, 3, 3, folder)
    kill(second)
    assert "4.pt was written after the state of step 2" in caplog.text


def test_a_checkpoint_before_the_first_step(trial: WrittenTrial, folder: Path) -> None:
    first = resumable(trial, folder)
    first.session.resumption.own_start()  # as rank 0 does before it trains
    (folder / "begin.pt").write_bytes(b"x")
    train(first, 0, 2, folder)
    kill(first)
    assert [(s.step, s.saved_step) for s in states(folder)] == [(-1, -1)]
    second = resumable(trial, folder)
    train(second, 0, 1, folder)
    second.close()
    assert numbers(trial.indexes()) == [(0, 1), (1, 2), (2, 3)]


def test_no_more_than_the_last_states_are_kept(
    trial: WrittenTrial, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.resuming.checkpoint._MAX_STATES", 3)
    hook = resumable(trial, folder)
    train(hook, 0, 8, folder, saved=tuple(range(8)))
    kill(hook)
    assert [state.step for state in states(folder)] == [5, 6, 7]


@pytest.mark.parametrize("name", [b"\xff.pt", b"x" * 250, "\U0001f600.pt".encode()])
def test_files_may_have_any_name(trial: WrittenTrial, folder: Path, name: bytes) -> None:
    first = resumable(trial, folder)
    train(first, 0, 1, folder, saved=(0,))
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x")
    train(first, 2, 3, folder)
    kill(first)
    second = resumable(trial, folder)
    train(second, 2, 2, folder)
    assert (second.step, second.failures.errors) == (2, {})
    second.close()


# In which run ------------------------------------------------------------------------------------


def test_a_training_that_ended_begins_a_new_run_at_the_next_step(
    trial: WrittenTrial, folder: Path
) -> None:
    first = resumable(trial, folder)
    train(first, 0, 4, folder, saved=(3,))
    first.close()
    run_id = trial.job().run_id
    assert trial.end_marker() is not None
    second = resumable(trial, folder)
    train(second, 4, 5, folder)
    second.flush()
    assert trial.end_marker() is None
    second.close()
    indexes = trial.indexes()
    assert [index.run == run_id for _, index in sorted(indexes.items())] == [True] * 4 + [False] * 2
    assert numbers(indexes)[4:] == [(4, 1), (5, 2)]


def test_a_hook_closed_before_the_end_continues_its_run(trial: WrittenTrial, folder: Path) -> None:
    first = resumable(trial, folder)
    train(first, 0, 4, folder, saved=(4,))
    first.save_scalar("accuracy", 0.5)
    first.close(end_of_training=False)
    assert trial.end_marker() is None
    assert [state.step for state in states(folder)] == [4]
    second = resumable(trial, folder)
    train(second, 5, 6, folder)
    second.close()
    assert numbers(trial.indexes()) == [(step, step + 1) for step in range(7)]
    assert len({index.run for index in trial.indexes().values()}) == 1


@pytest.mark.parametrize("other", ["folder", "run", "job"])
def test_another_folder_run_or_job_has_a_run_of_its_own(
    new_trial: Callable[[], WrittenTrial], folder: Path, other: str
) -> None:
    trial = new_trial()
    first = resumable(trial, folder)
    train(first, 0, 4, folder, saved=(3,))
    kill(first)
    run_id, job = trial.job().run_id, None
    if other == "folder":
        trial = new_trial()
        job = first.session.place.job
    elif other == "run":
        content = json.loads(trial.store.get(JOB_FILE)) | {"RunId": "ANOTHER"}
        trial.store.put(JOB_FILE, json.dumps(content).encode())
    else:
        job = JobEnvironment("job-2")
    second = resumable(trial, folder, job=job)
    train(second, 4, 5, folder)
    second.close()
    assert trial.job().run_id != run_id
    assert numbers(trial.indexes())[-2:] == [(4, 1), (5, 2)]
    assert second.training_run == 1


def test_on_sagemaker_the_folder_of_a_new_machine_is_empty(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "job-1"
    trial = WrittenTrial(str(root))
    first = resumable(trial, folder, job=SAGEMAKER)
    train(first, 0, 4, folder, saved=(3,))
    kill(first)
    run_id = trial.job().run_id
    shutil.rmtree(root)
    second = resumable(trial, folder, job=SAGEMAKER)
    train(second, 4, 5, folder)
    second.close()
    assert trial.job().run_id == run_id
    assert [(s, i.sequence, i.skipped) for s, i in sorted(trial.indexes().items())] == [
        (4, 5, None),
        (5, 6, None),
    ]


def test_a_state_of_the_original_has_the_step(trial: WrittenTrial, folder: Path) -> None:
    content = [
        {
            "training-run": 2,
            "latest-global-step-saved": 10,
            "latest-global-step-seen": 12,
            "latest-mode-step": {"GLOBAL": 12, "TRAIN": 8, "EVAL": 3},
        }
    ]
    (folder / STATE_FILE).write_text(json.dumps(content))
    hook = resumable(trial, folder)
    train(hook, 9, 10, folder)
    assert hook.mode_steps == {ModeKeys.GLOBAL: 14, ModeKeys.TRAIN: 10, ModeKeys.EVAL: 3}
    assert hook.training_run == 3
    hook.close()
    assert numbers(trial.indexes()) == [(13, 1), (14, 2)]


def test_a_resumed_run_that_was_asked_to_stop_stops(trial: WrittenTrial, folder: Path) -> None:
    first = resumable(trial, folder)
    train(first, 0, 4, folder, saved=(3,))
    kill(first)
    stop = StopFile("it explodes", "2026-11-20T10:00:00Z", run_id=trial.job().run_id)
    trial.store.put(STOP_FILE, stop.encode())
    second = resumable(trial, folder, stop="flag")
    train(second, 4, 4, folder)
    assert second.session.trial is not None
    assert second.session.trial.stop_signal.check() is not None
    assert second.should_stop
    second.close()
    third = resumable(
        trial, folder, stop="flag"
    )  # the run stopped: a new start ignores the request
    train(third, 4, 4, folder)
    assert third.session.trial is not None
    assert third.session.trial.stop_signal.check() is None
    third.close()


lives = st.lists(
    st.tuples(
        st.integers(1, 8),  # steps until it is killed
        st.sets(st.integers(0, 6)),  # those of them behind which a checkpoint is saved
        st.booleans(),  # whether older checkpoints are removed
    ),
    min_size=1,
    max_size=5,
)


@given(lives, st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_however_often_it_is_interrupted_a_training_is_one_run(
    plan: list[tuple[int, set[int], bool]], save_interval: int
) -> None:
    with TemporaryDirectory() as name:
        trial, folder = WrittenTrial(f"memory://lives-{name}/"), Path(name)
        last = -1

        def make() -> TinyHook:
            return resumable(trial, folder, save_config=SaveConfig(save_interval=save_interval))

        for life, (num_steps, saved, removes) in enumerate(plan):
            hook, begin = make(), last + 1
            for step in range(begin, begin + num_steps):
                train(hook, step, step, folder)
                assert hook.step == step
                if step - begin in saved and step < begin + num_steps - 1:
                    if removes:
                        for old in folder.glob("*.pt"):
                            old.unlink()
                    (folder / f"{step}-{life}.pt").write_bytes(b"x")
                    last = step
            kill(hook)
        assume(last >= 0)
        hook, end = make(), last + 10  # behind all that was stored before
        train(hook, last + 1, end, folder)
        hook.close()
        indexes = trial.indexes()
        found = [(step, i.sequence, i.skipped) for step, i in sorted(indexes.items())]
        due = range(0, end + 1, save_interval)
        assert found == [(step, number, None) for number, step in enumerate(due, start=1)]
        assert len({index.run for index in indexes.values()}) == 1


# What was lost -----------------------------------------------------------------------------------


def test_steps_that_were_not_stored_when_the_process_was_killed_are_accounted_for(
    trial: WrittenTrial, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = resumable(trial, folder)
    train(first, 0, 7, folder, saved=(5,))
    kill(first)
    for step in (4, 5, 6, 7):
        trial.store.delete(index_key(step, "worker_0"))
    second = resumable(trial, folder)
    train(second, 6, 7, folder)
    second.close()
    assert "2 of the last steps up to step 5 were not stored" in caplog.text
    found = [(s, i.sequence, i.skipped) for s, i in sorted(trial.indexes().items())]
    assert found[3:] == [(3, 4, None), (6, 7, 2), (7, 8, None)]


def test_another_worker_continues_after_its_own_last_file(
    trial: WrittenTrial, folder: Path
) -> None:
    def make(start: RunStart | None) -> TinyHook:
        return make_hook(trial, size=2, workers=FixedWorkers(1, 2, start))

    first = make(None)
    train(first, 0, 4, folder)
    kill(first)
    run_id = trial.indexes("worker_1")[0].run
    assert run_id is not None
    second = make(
        RunStart(
            run_id, "", 3, {"GLOBAL": 3}, saved_step=3, sequence=9, training_run=1, writers=(0, 1)
        )
    )
    train(second, 4, 5, folder)
    second.close()
    assert numbers(trial.indexes("worker_1")) == [(step, step + 1) for step in range(6)]
    assert second.training_run == 1


def test_the_start_goes_from_worker_to_worker() -> None:
    start = RunStart("RUN", "now", 3, {"GLOBAL": 3}, 2, 3, 1)
    assert RunStart.from_json(start.to_json()) == start


# Damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff" * 100, b"[" * 10_000])
def test_a_damaged_state_means_a_fresh_start(
    trial: WrittenTrial, folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / STATE_FILE).write_bytes(content)
    hook = resumable(trial, folder)
    train(hook, 0, 2, folder, saved=(1,))
    assert (hook.step, hook.training_run, hook.failures.errors) == (2, 0, {})
    kill(hook)
    assert "cannot be used" in caplog.text
    assert [state.step for state in states(folder)] == [1]


def test_a_folder_that_cannot_be_written_costs_nothing_else(
    trial: WrittenTrial, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    hook = resumable(trial, folder)
    train(hook, 0, 0, folder)
    folder.mkdir()
    (folder / STATE_FILE).mkdir()
    train(hook, 1, 5, folder, saved=(1, 2, 3, 4))
    assert hook.failures.errors == {}
    assert caplog.text.count("cannot be saved") == 1
    (folder / STATE_FILE).rmdir()
    checkpoints = hook.session.resumption._checkpoints
    assert checkpoints is not None
    checkpoints.file._here.breaker.succeeded()
    train(hook, 6, 7, folder)
    hook.close()
    assert [state.step for state in states(folder)] == [1, 2, 3, 4]
    assert len(trial.indexes()) == 8


# Files that are still being written --------------------------------------------------------------


def look(keeper: CheckpointKeeper, step: int) -> bool:
    return keeper.look(lambda: Progress(step, step, {"GLOBAL": step}, step + 1))


def test_a_file_that_is_written_in_the_background_counts_as_of_its_beginning(folder: Path) -> None:
    keeper = CheckpointKeeper(CheckpointConfig(folder), "job", clock=Clock())
    keeper.start(lambda _: True)
    with (folder / "1.pt.tmp").open("wb") as file:
        for step in range(1, 8):
            file.write(b"x")
            file.flush()
            assert not look(keeper, step)
    (folder / "1.pt.tmp").rename(folder / "1.pt")
    step = 8
    while not look(keeper, step):
        step += 1
        assert step < 80
    (state,) = states(folder)
    assert (state.step, state.files) == (1, {"1.pt": 7})


def test_a_log_that_stays_open_is_no_checkpoint(folder: Path) -> None:
    keeper = CheckpointKeeper(CheckpointConfig(folder), "job", clock=Clock())
    keeper.start(lambda _: True)
    with (folder / "train.log").open("w") as log:
        for step in range(20):
            log.write("a step\n")
            log.flush()
            if step == 10:
                (folder / "10.pt").write_bytes(b"x")
            assert look(keeper, step) == (step == 10)
    assert [(state.step, state.files) for state in states(folder)] == [(10, {"10.pt": 1})]


# The copy in S3 ----------------------------------------------------------------------------------

COPY = "s3://checkpoints/job-1"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> object:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3 = pytest.importorskip("boto3")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="checkpoints")
        yield


@pytest.mark.usefixtures("bucket")
def test_the_state_goes_to_another_machine_through_s3(
    trial: WrittenTrial, folder: Path, tmp_path: Path
) -> None:
    first = make_hook(trial, checkpoint=CheckpointConfig(folder, COPY))
    train(first, 0, 5, folder, saved=(2, 4))
    kill(first)
    there = open_store(COPY)
    assert there.get(STATE_FILE) == (folder / STATE_FILE).read_bytes()
    assert list(there.list()) == [STATE_FILE]

    other = tmp_path / "other machine"
    second = make_hook(trial, checkpoint=CheckpointConfig(other, COPY))
    train(second, 5, 6, other)
    second.close()
    assert numbers(trial.indexes()) == [(step, step + 1) for step in range(7)]
    assert second.training_run == 1
    saved = parse_states(there.get(STATE_FILE), file=STATE_FILE)
    assert [(s.step, s.training_run) for s in saved] == [(2, 0), (4, 0), (4, 1)]
    assert all(s.run is not None and s.run.has_ended for s in saved)


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("newer", ["here", "there"])
def test_the_newer_one_of_state_and_copy_counts(
    trial: WrittenTrial, folder: Path, newer: str
) -> None:
    old, new = SavedState(3, 3, {"GLOBAL": 3}, 1), SavedState(2, 2, {"GLOBAL": 2}, 2)
    here, there = (new, old) if newer == "here" else (old, new)
    (folder / STATE_FILE).write_bytes(encode_states([here]))
    open_store(COPY).put(STATE_FILE, encode_states([there]))
    hook = make_hook(trial, checkpoint=CheckpointConfig(folder, COPY))
    train(hook, 3, 3, folder)
    assert (hook.step, hook.training_run) == (3, 3)
    hook.close()


class Failing(MemoryStore):
    """A store that fails, or does not answer, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True
        self.answers = threading.Event()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        assert self.answers.wait(20)
        return super().get(key, start, length)

    def put(self, key: str, data: object) -> None:
        if self.is_away:
            raise StorageError("503")
        super().put(key, data)


def test_a_copy_that_cannot_be_reached_holds_nothing_up(
    trial: WrittenTrial,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Failing()
    monkeypatch.setattr("hook_layer.resuming.state_file.open_store", lambda _: store)
    monkeypatch.setattr("hook_layer.resuming.state_file._FETCH_TIMEOUT_S", 0.05)
    hook = make_hook(trial, checkpoint=CheckpointConfig(folder, COPY))
    with caplog.at_level(logging.WARNING):
        train(hook, 0, 3, folder, saved=(1, 2))
        hook.flush()
    assert "no answer within 0.05 s" in caplog.text
    assert caplog.text.count("503") == 1
    store.is_away = False
    store.answers.set()
    train(hook, 4, 5, folder)
    hook.close()
    assert store.get(STATE_FILE) == (folder / STATE_FILE).read_bytes()
    assert len(trial.indexes()) == 6
    assert trial.store.exists(END_MARKER)
