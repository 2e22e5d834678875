"""What a process leaves behind when it ends in one way or another."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.run.session_log import NOTES_VARIABLE, SessionLog
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


CHILDREN = """
import multiprocessing, os, sys
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook

def train(out_dir):
    global hook
    hook = make_hook(WrittenTrial(out_dir))
    for step in range(4):
        hook.train(W)

def train_and_fail(out_dir):
    train(out_dir)
    raise KeyError("later")

context = multiprocessing.get_context("fork")
"""
IN_A_PROCESS = """
process = context.Process(target=train, args=sys.argv[1:])
process.start()
process.join()
"""
IN_A_POOL = """
pool = context.Pool(1)
pool.map(train, sys.argv[1:])
pool.close()
pool.join()
"""
FORKED_LATER = """
train(sys.argv[1])
hook.flush()
del hook
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
"""


@pytest.mark.parametrize("body", [IN_A_PROCESS, IN_A_POOL], ids=["process", "pool"])
def test_a_training_in_a_forked_child_is_complete(tmp_path: Path, body: str) -> None:
    trial = run(tmp_path, body)
    assert set(trial.indexes()) == set(range(4))
    assert trial.end_marker() is not None


def test_a_forked_child_ends_no_training_of_its_parent(tmp_path: Path) -> None:
    trial = run(tmp_path, FORKED_LATER)
    assert set(trial.indexes()) >= set(range(3))
    assert trial.end_marker() is None


def test_the_error_that_ends_a_forked_child_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = SessionLog.make(tmp_path / "notes", ())
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    run(tmp_path / "trial", IN_A_PROCESS.replace("=train", "=train_and_fail"))
    (noted,) = notes.runs
    assert (noted.run.end, noted.run.details) == ("Failed", "KeyError: 'later'")


def test_the_error_that_the_parent_handles_is_none_of_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = SessionLog.make(tmp_path / "notes", ())
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    body = "".join(f"    {line}\n" for line in IN_A_PROCESS.strip().splitlines())
    run(tmp_path / "trial", f"try:\n    raise KeyError('earlier')\nexcept KeyError:\n{body}")
    (noted,) = notes.runs
    assert noted.run.end == "Completed"


def run(folder: Path, body: str) -> WrittenTrial:
    """Run a script that trains in a child, or has one."""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", CHILDREN + body, folder], check=True, cwd=root)
    return WrittenTrial(str(folder))
