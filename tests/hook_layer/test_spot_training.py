"""An interrupted run that continues elsewhere equals an uninterrupted one: real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from hook_layer.storage.base import Store
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime import create_trial
from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView
from tests.python_path import PYTHON_PATH

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
NUM_STEPS = 14
TIMEOUT_S = 180


class Diary(Rule):
    """Writes down the steps that it was shown."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["steps"] = [*memory.get("steps", []), step.step]
        return Passed()


class Reader:
    """Looks at the trial now and then, as the evaluators do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.state = EvaluationState.initial()

    def look(self, trial: WrittenTrial, *, ended: bool = False) -> None:
        marker = trial.end_marker()
        assert (marker is not None) == ended
        self.state = Reconciler(self._store, Diary(), trial.job().run_id).advance(
            self.state,
            load_step_files(self._store, list(self._store.list("index/"))),
            ended=ended,
            last_sequences=None if marker is None else marker.sequences,
        )


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 with the bucket `spot`."""
    boto3 = pytest.importorskip("boto3")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=address, region_name="us-east-1", **_credentials("aws_{}")
    )
    client.create_bucket(Bucket="spot")
    yield address
    server.stop()


def _credentials(pattern: str) -> dict[str, str]:
    return {pattern.format(name): "test" for name in ("access_key_id", "secret_access_key")}


@pytest.fixture
def use_s3(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name, value in _credentials("AWS_{}").items():
        monkeypatch.setenv(name.upper(), value)


def train(out_dir: str, machine: Path, interruption: str = "", s3_uri: str | None = None) -> int:
    """Run the script on a machine, whose folder holds the checkpoints; return how it ended."""
    (return_code,) = train_together(1, out_dir, machine, interruption, s3_uri)
    return return_code


def train_together(
    size: int, out_dir: str, machine: Path, interruption: str = "", s3_uri: str | None = None
) -> list[int]:
    """Run the script as several workers on a machine; return how each ended."""
    folder = machine / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    config = {"LocalPath": str(folder)} | ({} if s3_uri is None else {"S3Uri": s3_uri})
    (machine / "checkpointconfig.json").write_text(json.dumps(config))
    (machine / "rendezvous").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHON_PATH,
        "CHECKPOINT_CONFIG_FILE_PATH": str(machine / "checkpointconfig.json"),
        "RENDEZVOUS": str(machine / "rendezvous"),
        "WORLD_SIZE": str(size),
    }
    script = ROOT / "tests" / "hook_layer" / "spot_script.py"
    workers = [
        subprocess.Popen(
            [sys.executable, script, out_dir, folder, *interruption.split()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "RANK": str(rank)},
        )
        for rank in range(size)
    ]
    try:
        errors = [worker.communicate(timeout=TIMEOUT_S)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, error in zip(workers, errors, strict=True):
        assert worker.returncode <= 0, error
    return [worker.returncode for worker in workers]


def move(machine: Path, other: Path, *, with_state: bool) -> None:
    """Copy the checkpoints to another machine, as SageMaker does, and lose the first one."""
    left_out = () if with_state else ("metadata.json",)
    shutil.copytree(
        machine / "checkpoints",
        other / "checkpoints",
        ignore=shutil.ignore_patterns(*left_out),
        copy_function=shutil.copyfile,
    )
    shutil.rmtree(machine)


@pytest.mark.usefixtures("use_s3")
def test_an_interrupted_training_equals_one_that_was_not(tmp_path: Path) -> None:
    copy = "s3://spot/checkpoints"
    trial = WrittenTrial("s3://spot/job-1")
    reader = Reader(trial.store)
    machines = [tmp_path / f"machine-{number}" for number in range(3)]

    # Killed in the midst of step 5: checkpoint of step 3, steps to 4 stored.
    assert train(trial.uri, machines[0], "SIGKILL:5") == -signal.SIGKILL
    run_id, started_at = trial.job().run_id, trial.job().started_at
    assert set(trial.indexes()) >= {0, 1, 2, 3}
    reader.look(trial)
    move(machines[0], machines[1], with_state=True)

    # SIGTERM right after the checkpoint of step 11, which no step has seen yet.
    assert train(trial.uri, machines[1], "SIGTERM:11", copy) == -signal.SIGTERM
    assert list(trial.indexes()) == list(range(12))
    reader.look(trial)
    move(machines[1], machines[2], with_state=False)

    # To the end; the state comes out of S3.
    assert train(trial.uri, machines[2], s3_uri=copy) == 0
    reader.look(trial, ended=True)
    assert (trial.job().run_id, trial.job().started_at) == (run_id, started_at)
    saved = json.loads((machines[2] / "checkpoints" / "metadata.json").read_text())
    assert saved[-1]["training-run"] == 2

    indexes = trial.indexes()
    assert {index.run for index in indexes.values()} == {run_id}
    numbers = [(step, i.sequence, i.skipped) for step, i in sorted(indexes.items())]
    assert numbers == [(step, step + 1, None) for step in range(NUM_STEPS)]
    marker = trial.end_marker()
    assert marker is not None
    assert (marker.run_id, marker.sequences) == (run_id, {"worker_0": NUM_STEPS})

    # The rules have seen each step once, and are sure to have seen all.
    state = reader.state
    assert state.memory["steps"] == list(range(NUM_STEPS))
    assert (state.ended, state.counts.evaluated, state.counts.missing) == (True, NUM_STEPS, 0)
    assert (state.progress.late, state.progress.workers["worker_0"].seen) == (0, [(1, NUM_STEPS)])

    uninterrupted = WrittenTrial(str(tmp_path / "uninterrupted"))
    assert train(uninterrupted.uri, tmp_path / "machine-3") == 0
    for step in range(NUM_STEPS):
        ours, theirs = trial.records(step), uninterrupted.records(step)
        assert ours.keys() == theirs.keys()
        assert "scalar/lr" in ours
        for name, record in ours.items():
            assert np.isfinite(record.value).all()
            assert record.value.tobytes() == theirs[name].value.tobytes(), (step, name)
            assert (record.mode, record.mode_step) == (theirs[name].mode, theirs[name].mode_step)
    ours_trial, their_trial = create_trial(trial.uri), create_trial(uninterrupted.uri)
    assert ours_trial.steps() == their_trial.steps() == list(range(NUM_STEPS))
    assert ours_trial.tensor_names() == their_trial.tensor_names()
    assert ours_trial.loaded_all_steps


def test_workers_that_were_killed_together_go_on_together(tmp_path: Path) -> None:
    trial = WrittenTrial(str(tmp_path / "trial"))
    machine = tmp_path / "machine"
    killed = train_together(2, trial.uri, machine, "SIGKILL:6")
    assert killed == [-signal.SIGKILL] * 2
    run_id = trial.job().run_id
    assert train_together(2, trial.uri, machine) == [0, 0]
    for worker in ("worker_0", "worker_1"):
        indexes = trial.indexes(worker)
        assert {index.run for index in indexes.values()} == {run_id}
        numbers = [(step, i.sequence, i.skipped) for step, i in sorted(indexes.items())]
        assert numbers == [(step, step + 1, None) for step in range(NUM_STEPS)]
    assert trial.job().run_id == run_id
    assert create_trial(trial.uri).workers() == ["worker_0", "worker_1"]
