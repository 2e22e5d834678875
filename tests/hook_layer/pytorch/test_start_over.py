"""A hook that forgets a model, and its first step: it was only tried out."""

from __future__ import annotations

import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def test_nothing_of_the_first_step_is_left(trial: WrittenTrial) -> None:
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["relu_output", "weights"],
    )
    part = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    hook.register_module(part)
    part(torch.ones(2, 3))
    assert hook.loop.start_over()
    whole = nn.Sequential(part, nn.Linear(4, 1))
    hook.register_module(whole)
    for _ in range(2):
        whole(torch.ones(2, 3)).square().mean().backward()
    assert not hook.loop.start_over()
    hook.close()
    assert not hook.report().errors
    assert list(trial.indexes()) == [0, 1]
    weights = {"Sequential_0.0.weight", "Sequential_1.weight"}
    assert trial.names(0) == weights | {"0.1_output_0", "Loss_output_0"}
