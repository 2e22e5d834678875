"""What is seen of each logging library, and that it stores the same as without Stepwatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import isnan
from pathlib import Path

from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial
from tests.python_path import PYTHON_PATH

SCRIPTS = Path(__file__).resolve().parent / "scripts"
LOSSES = [0.5, 0.25, None, 0.125]


def test_each_library_is_seen_and_stores_the_same(tmp_path: Path) -> None:
    watch_and_compare("libraries_script.py", tmp_path)
    trial = create_trial(str(tmp_path / "watched" / "out" / "run-1"))
    steps = {"torch": 10, "tensorboardX": 10}
    for name in ("offline", "disabled", "torch", "tensorboardX", "mlflow", "trackio"):
        losses, own_steps = series(trial, f"{name}/loss")
        assert losses == LOSSES, name
        if name == "disabled":  # wandb counts no steps then
            assert own_steps == [-1] * 4
            continue
        assert own_steps == [steps.get(name, 1) * step for step in range(4)], name
    seen = set(trial.tensor_names(regex="^scalar/"))
    assert {
        f"scalar/{name}"
        for name in (
            *("offline/eval/accuracy", "disabled/eval/accuracy", "offline/rate", "disabled/rate"),
            *("torch/both/a", "torch/both/b", "tensorboardX/both/a", "mlflow/one", "mlflow/two"),
            *("trackio/nested/x",),
        )
    } < seen
    assert not [name for name in seen if "label" in name or "histogram" in name or "seen" in name]
    assert set(trial.tensor_names(collection="logged")) == seen


def test_each_trainer_is_seen_once_and_its_loggers_store_the_same(tmp_path: Path) -> None:
    watch_and_compare("trainers_script.py", tmp_path)
    seen = []
    for number, name in enumerate(("of_lightning", "loss", "loss"), start=1):
        trial = create_trial(str(tmp_path / "watched" / "out" / f"run-{number}"))
        assert series(trial, name)[1]
        seen += trial.tensor_names(regex="^(scalar|logged_step)/")
    assert not [name for name in seen if "train/" in name]  # of the Trainer's own loggers


def series(trial: Trial, name: str) -> tuple[list[float | None], list[float]]:
    """Return the values of a logged scalar, None for NaN, and the script's steps."""
    values, steps = (
        [float(tensor.value(step).item()) for step in tensor.steps()]
        for tensor in (trial.tensor(f"scalar/{name}"), trial.tensor(f"logged_step/{name}"))
    )
    return [None if isnan(value) else value for value in values], steps


def watch_and_compare(script: str, folder: Path) -> None:
    """Run a script plainly and watched, and compare what its loggers stored."""
    command = [sys.executable, str(SCRIPTS / script)]
    options = ["--rule", "NonFinite", "--stop", "never", "--save-interval", "1"]
    watched = [sys.executable, "-m", "stepwatch", "run", *options, "--out-dir", "out", "--"]
    plain = run(command, folder / "plain")
    assert plain.returncode == 0, plain.stderr
    done = run([*watched, *command], folder / "watched")
    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr
    assert "not stored" not in done.stderr
    stored = [
        json.loads((folder / place / "stored.json").read_text()) for place in ("plain", "watched")
    ]
    assert json.dumps(stored[0]) == json.dumps(stored[1])


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    variables = {
        "KERAS_BACKEND": "torch",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": "file:mlruns",
        "PYTHONPATH": PYTHON_PATH,
        "TENSORBOARD_LOGGING_DIR": "hf/runs",
        "TRACKIO_DIR": str(folder / "trackio"),
    }
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
