"""A process that is killed in the middle of a step leaves a trial of complete steps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.faults.training import stored_steps, train
from tests.hook_layer.tiny_hook import make_hook

NUM_BYTES = 300_000


def run(out_dir: Path, die: tuple[str, int]) -> int:
    arguments = {
        "out_dir": str(out_dir),
        "num_steps": 20,
        "sizes": [NUM_BYTES],
        "options": {},
        "die": die,
    }
    command = [sys.executable, "-m", "tests.hook_layer.faults.training", json.dumps(arguments)]
    return subprocess.run(command, check=False, timeout=60).returncode


@pytest.mark.parametrize(
    ("at", "last_step"),
    [
        ("in events/", 5),
        ("before events/", 5),
        ("behind events/", 5),
        ("in index/", 5),
        ("before index/", 5),
        ("behind index/", 6),
    ],
)
def test_a_killed_process_leaves_complete_steps(tmp_path: Path, at: str, last_step: int) -> None:
    assert run(tmp_path, (at, 7)) == -signal.SIGKILL
    assert stored_steps(str(tmp_path)) == list(range(last_step + 1))
    trial = WrittenTrial(str(tmp_path))
    assert [index.sequence for index in trial.indexes().values()] == list(range(1, last_step + 2))
    assert trial.end_marker() is None


def test_the_next_training_in_the_folder_of_a_killed_one_is_whole(tmp_path: Path) -> None:
    assert run(tmp_path, ("in events/", 3)) == -signal.SIGKILL
    hook = make_hook(WrittenTrial(str(tmp_path)))
    train(hook, 5, [NUM_BYTES])
    assert stored_steps(str(tmp_path)) == [0, 1, 2, 3, 4]
    assert hook.report().is_complete
