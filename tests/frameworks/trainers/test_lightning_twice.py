"""One callback in two trainings with Lightning."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from hook_layer.lightning import StepwatchCallback
from hook_layer.pytorch import SaveConfig
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.trainers.lightning_training import Lit, batches, trainer


def test_passes_between_two_trainings_are_no_late_tensors(trial: WrittenTrial) -> None:
    """Neither those of the next sanity check nor those of the script itself."""
    every_step = SaveConfig(save_interval=1)
    callback, model = StepwatchCallback(trial.uri, save_config=every_step, save_all=True), Lit()
    for _ in range(2):
        trainer(callback, num_sanity_val_steps=2).fit(model, batches(2), batches(1))
        model.net(torch.zeros(1, 4))
    callback.close()
    assert callback.hook.report().late_tensors == 0
    found = [(index.mode.name, index.mode_step) for _, index in sorted(trial.indexes().items())]
    first = [("TRAIN", 0), ("TRAIN", 1), ("EVAL", 0)]
    assert found == [*first, ("TRAIN", 2), ("TRAIN", 3), ("EVAL", 1)]


class Interrupted(Callback):  # Lightning's, unknown to mypy
    """Gets SIGTERM in a batch."""

    def on_train_batch_end(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("has_new_hook", [False, True])
def test_a_signal_in_the_second_training_is_no_end(tmp_path: Path, has_new_hook: bool) -> None:
    """Behind each training Lightning puts back the handler that it found."""
    every_step = SaveConfig(save_interval=1)
    hooks = [StepwatchCallback(tmp_path / str(run), save_config=every_step) for run in range(2)]
    trainer(hooks[0]).fit(Lit(), batches(2))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(SystemExit):  # Lightning decides
        trainer(hooks[has_new_hook], Interrupted()).fit(Lit(), batches(3))
    for callback in hooks:
        callback.close()
    interrupted = WrittenTrial(str(tmp_path / str(int(has_new_hook))))
    assert len(interrupted.indexes()) == (1 if has_new_hook else 3)
    assert interrupted.end_marker() is None


def test_the_handler_of_signals_keeps_no_trainer_alive(tmp_path: Path) -> None:
    callback, model = StepwatchCallback(tmp_path), Lit()
    training = trainer(callback)
    training.fit(model, batches(2))
    callback.close()
    left = weakref.ref(training), weakref.ref(model)
    del training, model, callback  # Lightning gives callbacks a method of the model
    gc.collect()
    assert [one() for one in left] == [None, None]
