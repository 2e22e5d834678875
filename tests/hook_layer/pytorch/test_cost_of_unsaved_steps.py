"""What a step costs that is not saved, in Python calls of the hook."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer
import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

OF_HOOK = str(Path(hook_layer.__file__).parent)
SAVE_INTERVAL = 4
UNSAVED_STEP = 10


def num_calls(trial: WrittenTrial, num_models: int) -> int:
    """Train models with an optimizer each; return the calls of the hook in an unsaved step."""
    save_config = smd.SaveConfig(save_interval=SAVE_INTERVAL)
    hook = smd.Hook(
        f"{trial.uri}/{num_models}", include_collections=["weights"], save_config=save_config
    )
    models = [nn.Linear(3, 1) for _ in range(num_models)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model in models:
        hook.register_module(model)
    hook.follow_optimizers()
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OF_HOOK):
            calls.append(frame.f_code.co_name)

    for step in range(UNSAVED_STEP + 1):
        if step == UNSAVED_STEP:
            sys.setprofile(count)
        try:
            for model, optimizer in zip(models, optimizers, strict=True):
                loss = F.mse_loss(model(torch.ones(2, 3)), torch.ones(2, 1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        finally:
            sys.setprofile(None)
    hook.close()
    return len(calls)


def test_an_unsaved_step_costs_few_calls_and_each_further_model_fewer(trial: WrittenTrial) -> None:
    costs = [num_calls(trial, num_models) for num_models in (1, 2, 3)]
    assert costs[0] <= 20
    assert costs[2] - costs[1] <= 10
