"""What a process leaves behind when it ends in one way or another."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.testing.written_trial import WrittenTrial

pytest.importorskip("torch")

SCRIPT = """
import os, signal, sys
import torch
from hook_layer.pytorch import Hook, SaveConfig
hook = Hook(sys.argv[1], save_config=SaveConfig(save_interval=1), include_collections=["weights"])
net = torch.nn.Linear(2, 2)
hook.register_module(net)
for step in range(4):
    net(torch.ones(2)).sum().backward()
    if step == 3:
        hook.flush()
        {ending}
"""


@pytest.mark.parametrize(
    ("ending", "return_code", "is_marked", "steps"),
    [
        ("pass", 0, True, 4),
        ("raise KeyError(step)", 1, True, 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, False, 3),
    ],
)
def test_the_end_marker_is_for_true_ends(
    tmp_path: Path, ending: str, return_code: int, is_marked: bool, steps: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(ending=ending))
    out_dir = tmp_path / "trial"
    done = subprocess.run([sys.executable, script, out_dir], check=False, capture_output=True)
    assert done.returncode == return_code, done.stderr
    trial = WrittenTrial(str(out_dir))
    assert (trial.end_marker() is not None) == is_marked
    # A step stays open until it is captured, so the last one is not there after a kill.
    assert set(trial.indexes()) >= set(range(steps))
    assert not [path for path in out_dir.rglob("*") if path.suffix == ".tmp"]
