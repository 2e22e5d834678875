"""What a hook leaves behind when it is closed, dies, or its process ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from hook_layer.configuration.save_config import SaveConfig
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, index_key
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook


def test_values_after_the_last_step_become_part_of_it(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.set_mode(ModeKeys.TRAIN)
    for step in range(3):
        if step == 2:
            hook.save_scalar("test_accuracy", 0.1)
        hook.train(W)
    hook.save_scalar("test_accuracy", 0.9)
    hook.close()
    assert list(trial.indexes()) == [0, 1, 2]
    records = trial.records(2)
    assert set(records) == {"w", "scalar/test_accuracy"}
    assert records["w"].value.tolist() == [1, 1]
    record = records["scalar/test_accuracy"]
    assert (record.value.item(), record.mode, record.mode_step) == (0.9, ModeKeys.TRAIN, 2)
    assert trial.statistics(2)["scalar/test_accuracy"]["mean"] == 0.9
    assert hook.report().steps_seen == 3
    marker = trial.end_marker()
    assert marker is not None
    assert marker.sequences == {"worker_0": 3}


def test_they_become_a_step_if_the_files_of_the_last_one_are_damaged(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.train(W)
    hook.train(W)
    assert hook.flush()
    trial.store.put(index_key(1, "worker_0"), b"{}")
    hook.save_scalar("test_accuracy", 0.9)
    hook.close()
    assert trial.store.get(index_key(1, "worker_0")) == b"{}"
    trial.store.delete(index_key(1, "worker_0"))
    assert trial.values(2)["scalar/test_accuracy"].item() == 0.9


@pytest.mark.parametrize("place", ["/proc/tensors", "file/tensors"])
def test_a_folder_that_cannot_be_made_holds_neither_training_nor_its_end_up(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("")
    hook = make_hook(
        WrittenTrial(str(tmp_path / place)), spool_dir=tmp_path / "spool", close_timeout_s=60
    )
    for _ in range(10):
        hook.train(W)
    began = time.monotonic()
    hook.close()
    assert time.monotonic() - began < 30  # it is not waited for until the timeout
    assert hook.report().writer.steps_in_spool == 10


def test_what_waits_for_a_saved_step_is_stored_at_the_end(trial: WrittenTrial) -> None:
    hook = make_hook(trial, save_config=SaveConfig(save_interval=10))
    for step in range(5):
        hook.train(W)
        hook.save_scalar("lr", step)
    hook.close()
    assert list(trial.indexes()) == [0, 4]
    assert trial.values(4)["scalar/lr"].item() == 4


def test_a_hook_that_saw_no_step_writes_nothing(trial: WrittenTrial) -> None:
    make_hook(trial).close()
    with make_hook(trial) as hook:
        assert hook.is_active
    assert not list(trial.store.list())


def test_a_hook_that_was_only_given_values_writes_all_files(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.save_scalar("a", 1)
    hook.close()
    assert trial.values(0)["scalar/a"].item() == 1
    assert trial.job().run_id
    assert trial.collections().num_workers == 1
    assert trial.end_marker() is not None


def test_values_without_any_step_wait_for_no_other_worker(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial, size=2)
    hook.save_scalar("a", 1)
    hook.close()
    assert not list(trial.store.list())
    assert "scalar/a" in caplog.text


def test_a_run_that_saved_no_step_has_its_collections(trial: WrittenTrial) -> None:
    hook = make_hook(trial, save_config=SaveConfig(start_step=100))
    hook.train(W)
    hook.close()
    assert "mine" in trial.collections().collections
    assert trial.end_marker() is not None


def test_a_hook_is_not_kept_alive_until_the_process_ends(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.train(W)
    dead = weakref.ref(hook)
    process_end = hook._process_end
    assert process_end is not None
    del hook
    gc.collect()
    assert dead() is None
    assert not trial.store.exists(END_MARKER)
    process_end.run()
    process_end.cancel()
    assert trial.names(0) == {"w"}
    assert trial.end_marker() is not None


SCRIPT = """
import sys
import numpy as np
from hook_layer.testing.written_trial import WrittenTrial
sys.path.insert(0, {root!r})
from tests.hook_layer.tiny_hook import W, make_hook
trial = WrittenTrial(sys.argv[1])
hook = make_hook(trial)
hook.train(W)
hook.train(W)
hook.save_scalar("last", 1)
{ending}
"""


@pytest.mark.parametrize("ending", ["pass", "del hook", "raise KeyError"])
def test_nothing_is_lost_when_the_process_ends(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "train.py"
    root = str(Path(__file__).parents[3])
    script.write_text(SCRIPT.format(root=root, ending=ending))
    out_dir = tmp_path / "trial"
    done = subprocess.run([sys.executable, script, out_dir], check=False, capture_output=True)
    assert done.returncode == (ending == "raise KeyError"), done.stderr
    trial = WrittenTrial(str(out_dir))
    assert list(trial.indexes()) == [0, 1]
    assert trial.names(1) == {"w", "scalar/last"}
    assert trial.end_marker() is not None
