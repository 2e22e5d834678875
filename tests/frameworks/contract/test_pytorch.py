"""The contract of hooks, kept by PyTorch's."""

from __future__ import annotations

import torch
from torch import nn

import stepwatch.torch
from hook_layer.core.hook import BaseHook
from hook_layer.pytorch import Hook, modes
from hook_layer.testing.hook_contract import (
    HookContract,
    OnStep,
    Trained,
    TrainingUnderTest,
    digest_of,
    nothing,
)
from rule_runtime.testing.fact_contract import FactContract
from tests.frameworks.default_hooks import DefaultHookContract

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.dropout(torch.relu(self.hidden(inputs))))
        return outputs


class PyTorchTraining(TrainingUnderTest):
    adapter = "PyTorch"
    hook_type = Hook
    loss_name = "CrossEntropyLoss_output_0"
    names = {
        "losses": "CrossEntropyLoss_output_0",
        "weights": "Net_hidden.weight",
        "biases": "Net_hidden.bias",
        "gradients": "gradient/Net_head.weight",
    }
    spread_ddof = 1
    more_names = ("hidden_input_0", "hidden_output_0", "Net_output_0", "CrossEntropyLoss_input_1")

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        torch.manual_seed(0)
        model, criterion = Net(), nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        if hook is not None:
            assert isinstance(hook, Hook)
            hook.register_module(model)
            hook.register_loss(criterion)
            hook.set_mode(modes.TRAIN)
        losses = []
        for step in range(steps):
            loss = criterion(model(torch.randn(5, 6)), torch.randint(3, (5,)))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            on_step(step)
        if hook is not None:
            hook.set_mode(modes.EVAL)
        model.eval()
        with torch.no_grad():
            for _ in range(evaluations):
                criterion(model(torch.randn(5, 6)), torch.randint(3, (5,)))
        return Trained(digest_of(p.detach() for p in model.parameters()), tuple(losses))


class TestPyTorch(PyTorchTraining, HookContract):
    """The contract of hooks."""


class TestFactsOfPyTorch(PyTorchTraining, FactContract):
    """The facts that rules know."""

    missing_facts = {"sample weights": "PyTorch's losses take none; scripts multiply by them"}


class TestDefaultHookOfPyTorch(PyTorchTraining, DefaultHookContract):
    """What `stepwatch.torch.Hook` saves."""

    default_type = stepwatch.torch.Hook
