"""Training by a loss of a script's own, and what torch and the hook then know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.testing.written_trial import WrittenTrial

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import nn  # noqa: E402

import hook_layer.pytorch as smd  # noqa: E402

X, Y = torch.ones(4, 3), torch.tensor([[0.5], [1.0], [0.0], [2.0]])
OWN = {"Surprise_output_0"}


class Surprise(nn.Module):
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs - targets) ** 2).log1p().mean()


class Loop:
    def __init__(self, trial: WrittenTrial, **options: Any) -> None:
        torch.manual_seed(0)
        each = {"save_config": smd.SaveConfig(save_interval=1)}
        self.hook = smd.Hook(trial.uri, **(each | options))
        self.net = nn.Linear(3, 1)
        self.hook.register_module(self.net)
        self.hook.look_for_losses()

    def step(self, loss: Callable[[torch.Tensor], torch.Tensor]) -> float:
        value = loss(self.net(X))
        value.backward()
        return float(value.detach())


def module_hooks() -> int:
    """Return how many hooks torch calls at every module."""
    known = torch.nn.modules.module
    return len(known._global_forward_hooks) + len(known._global_forward_pre_hooks)


def hook_errors(loop: Loop) -> object:
    return loop.hook.report().errors
