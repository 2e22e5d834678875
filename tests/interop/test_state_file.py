"""A training that one client began and the other goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hook_layer.configuration.job import CheckpointConfig
from hook_layer.resuming.checkpoint import CheckpointKeeper, Progress

pytestmark = pytest.mark.other_environment


def test_each_client_goes_on_where_the_other_was(
    tmp_path: Path, run_smdebug: Callable[..., str]
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    ours = CheckpointKeeper(CheckpointConfig(folder), "job")
    ours.start(lambda _: True)
    (folder / "1.pt").write_bytes(b"x")
    assert ours.look(lambda: Progress(12, 10, {"GLOBAL": 12, "TRAIN": 9, "EVAL": 2}, 6))

    assert json.loads(run_smdebug("state_script.py", str(folder))) == {
        "training-run": 0,
        "latest-global-step-saved": 10,
        "latest-global-step-seen": 12,
        "latest-mode-step": {"GLOBAL": 12, "TRAIN": 9, "EVAL": 2},
    }

    start = CheckpointKeeper(CheckpointConfig(folder), "job").start(lambda _: True)
    assert (start.step, start.training_run) == (42, 4)
    assert start.mode_steps == {"GLOBAL": 42, "TRAIN": 40, "EVAL": 1}
    assert (start.sequence, start.saved_step) == (0, -1)
