"""Two workers that train one model, over loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xgboost.tracker import RabitTracker

from hook_layer.testing.written_trial import WrittenTrial
from tests.python_path import PYTHON_PATH

WORKER = Path(__file__).with_name("distributed_worker.py")
Outcomes = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> Outcomes:
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2)
    tracker.start()
    communicator = json.dumps({**tracker.worker_args(), "dmlc_communicator": "rabit"})
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHON_PATH,
    }
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), communicator, str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    found: Outcomes = {}
    try:
        for worker in workers:
            output, errors = worker.communicate(timeout=60)
            assert worker.returncode == 0, errors[-4000:]
            rank, outcome = json.loads(output.splitlines()[-1])
            found[rank] = outcome
    finally:
        for worker in workers:
            worker.kill()
    tracker.wait_for(timeout=10)
    return found


def test_all_workers_write_one_run(folder: Path, outcomes: Outcomes) -> None:
    trial = WrittenTrial(str(folder / "all"))
    for rank in (0, 1):
        indexes = trial.indexes(f"worker_{rank}")
        assert sorted(indexes) == [0, 1, 2]
        assert {index.run for index in indexes.values()} == {trial.job().run_id}
        assert {index.workers for index in indexes.values()} == {2}
        assert trial.collections(f"worker_{rank}").num_workers == 2
        values = {n: r.value for n, r in trial.records(2, f"worker_{rank}").items()}
        assert values["train-rmse"][0] == outcomes[rank]["all"]["rmse"][2]
        predictions = np.array(outcomes[rank]["all"]["predictions"], np.float32)
        assert np.array_equal(values["predictions"], predictions)


def test_labels_are_not_those_of_all_ranks(outcomes: Outcomes) -> None:
    for rank in (0, 1):
        assert "each rank has only a part of the rows" in outcomes[rank]["reason_without_labels"]


def test_a_request_that_one_sees_ends_all_after_the_same_round(outcomes: Outcomes) -> None:
    for rank in (0, 1):
        assert outcomes[rank]["all"]["rounds"] == 3
        assert outcomes[rank]["all"]["reason"] == "the loss grows: é"


def test_one_worker_writes_and_cannot_stop_the_others(folder: Path, outcomes: Outcomes) -> None:
    trial = WrittenTrial(str(folder / "one"))
    assert sorted(trial.indexes("worker_0")) == [0, 1, 2, 3, 4]
    assert trial.indexes("worker_1") == {}
    assert {index.workers for index in trial.indexes().values()} == {1}
    assert [outcomes[rank]["one"]["rounds"] for rank in (0, 1)] == [5, 5]
    assert [outcomes[rank]["one"]["reason"] for rank in (0, 1)] == ["the loss grows: é", None]
