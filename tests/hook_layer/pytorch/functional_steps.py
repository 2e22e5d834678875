"""Steps of training by functional losses, and what they save."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

UNNAMED = "Loss_output_0"
X = torch.linspace(-1, 1, 12).view(4, 3)
CLASSES = torch.tensor([0, 1, 2, 1])
NUMBERS = torch.linspace(0, 1, 12).view(4, 3)

Graph = Callable[[torch.Tensor], torch.Tensor]


def make_hook(
    trial: WrittenTrial, regex: str = "[Ll]oss_input_[0-9]+$", save_interval: int = 1
) -> smd.Hook:
    save_config = smd.SaveConfig(save_interval=save_interval)
    hook = smd.Hook(trial.uri, save_config=save_config, include_collections=["inputs"])
    hook.get_collection("inputs").include(regex)
    return hook


def make_net(hook: smd.Hook | None) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    if hook is not None:
        hook.register_module(net)
    return net


def saved(trial: WrittenTrial, loss: Graph, net: Any = None) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return what a step of training by a loss saves."""
    hook = make_hook(trial)
    model = make_net(hook)
    loss((net or (lambda x: x))(model(X))).backward()
    hook.close()
    assert not hook.report().errors
    return dict(trial.values(0))


def names_of(kind: str, first: int = 0) -> set[str]:
    return {f"{kind}_input_{2 * first}", f"{kind}_input_{2 * first + 1}", f"{kind}_output_{first}"}
