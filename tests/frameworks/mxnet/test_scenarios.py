"""The scripts of `scenarios/`, run as their user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime import create_trial

ROOT = Path(__file__).parents[3]
NAMES = [
    "conv0_bias",
    "conv0_input_0",
    "conv0_output_0",
    "conv0_relu_input_0",
    "conv0_relu_output_0",
    "conv0_weight",
    "gradient/conv0_bias",
    "gradient/conv0_weight",
]
TIMEOUT_S = 120


def started(script: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    module = f"tests.frameworks.mxnet.scenarios.{script}"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("way", ["plain", "hybridized"])
def test_activations_are_read_while_the_training_runs(tmp_path: Path, way: str) -> None:
    options = ["--hybridize"] if way == "hybridized" else []
    out_dir = tmp_path / "trial"
    training = started("train", out_dir, "--steps", 30, "--wait", *options)
    analysis = started("analyse", out_dir)
    try:
        assert training.stdin is not None
        assert analysis.stdout is not None
        live = [json.loads(analysis.stdout.readline()) for _ in range(2)]
        assert not any(line["has_ended"] for line in live)  # it waits for us
        print(file=training.stdin, flush=True)
        _, errors = training.communicate(timeout=TIMEOUT_S)
        assert training.returncode == 0, errors
        output, errors = analysis.communicate(timeout=TIMEOUT_S)
        assert analysis.returncode == 0, errors
    finally:
        training.kill()
        analysis.kill()
    lines = [*live, *map(json.loads, output.splitlines())]
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert all(line["names"] == NAMES for line in lines)
    assert all(line["shape"] == [64, 6, 24, 24] for line in lines)
    assert all(0 < line["active_pct"] < 100 and line["gradient_norm"] > 0 for line in lines)


def spot(out_dir: Path, machine: Path, *options: object) -> subprocess.Popen[str]:
    """Start the spot training on a machine, whose folder holds the checkpoints."""
    folder = machine / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    config = machine / "checkpointconfig.json"
    config.write_text(json.dumps({"LocalPath": str(folder)}))
    return started("spot", out_dir, folder, *options, CHECKPOINT_CONFIG_FILE_PATH=str(config))


def ended(process: subprocess.Popen[str]) -> int:
    try:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode <= 0, errors
    return process.returncode


def test_an_interrupted_training_equals_one_that_was_not(tmp_path: Path) -> None:
    out_dir = tmp_path / "trial"
    uninterrupted = spot(tmp_path / "uninterrupted", tmp_path / "machine-3")
    machines = [tmp_path / f"machine-{number}" for number in range(3)]
    assert ended(spot(out_dir, machines[0], "--interrupt", 5)) == -signal.SIGTERM
    shutil.copytree(machines[0] / "checkpoints", machines[1] / "checkpoints")
    assert ended(spot(out_dir, machines[1], "--interrupt", 9)) == -signal.SIGTERM
    shutil.copytree(machines[1] / "checkpoints", machines[2] / "checkpoints")
    assert ended(spot(out_dir, machines[2])) == 0
    assert ended(uninterrupted) == 0

    found, expected = WrittenTrial(str(out_dir)), WrittenTrial(str(tmp_path / "uninterrupted"))
    indexes = found.indexes()
    assert {index.run for index in indexes.values()} == {found.job().run_id}
    assert [(s, i.sequence) for s, i in sorted(indexes.items())] == [(s, s + 1) for s in range(14)]
    marker = found.end_marker()
    assert marker is not None
    assert marker.sequences == {"worker_0": 14}
    saved = json.loads((machines[2] / "checkpoints" / "metadata.json").read_text())
    assert saved[-1]["training-run"] == 2
    for step in range(14):
        ours, theirs = found.values(step), expected.values(step)
        assert ours.keys() == theirs.keys()
        assert set(NAMES) < ours.keys()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=f"{name} of step {step}")
    trial = create_trial(str(out_dir))
    assert trial.steps() == list(range(14))
    assert trial.loaded_all_steps
