"""One callback in two trainings with Lightning."""

from __future__ import annotations

import torch

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
