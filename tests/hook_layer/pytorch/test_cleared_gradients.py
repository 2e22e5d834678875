"""`optimizer_steps/gradients_left`: whether gradients of earlier steps are cleared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from hook_layer.pytorch import Hook, SaveConfig
from rule_runtime import create_trial

Step = Callable[[nn.Module, SGD, Tensor], None]
NAME = "optimizer_steps/gradients_left"


def _left(folder: Path, train: Step, num_steps: int = 5) -> list[float]:
    """Return what the hook counted at each step but the first, after which nothing can be left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), 0.01)
    config = SaveConfig(save_interval=1)
    hook = Hook(folder, save_config=config, include_collections=["optimizer_steps"])
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    for _ in range(num_steps):
        train(model, optimizer, torch.randn(8, 3))
    hook.close()
    assert not hook.report().errors
    tensor = create_trial(str(folder)).tensor(NAME)
    return [float(tensor.value(step)) for step in tensor.steps() if step]


def _never_cleared(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    model(rows).square().mean().backward()
    optimizer.step()


def _cleared_after_the_step(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    _never_cleared(model, optimizer, rows)
    optimizer.zero_grad()


def _cleared_after_the_forward_pass(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _set_to_zero(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    optimizer.zero_grad(set_to_none=False)
    _never_cleared(model, optimizer, rows)


def _accumulated(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    for part in rows.split(2):
        model(part).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _cleared_before_the_second_pass(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    """As in an adversarial training, in which the other loss reaches these weights first."""
    model(rows).mean().backward()
    optimizer.zero_grad()
    _never_cleared(model, optimizer, rows)


def _cut_off(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    model(rows).detach().requires_grad_().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "train",
    [
        _cleared_after_the_step,
        _cleared_after_the_forward_pass,
        _set_to_zero,
        _accumulated,
        _cleared_before_the_second_pass,
        _cut_off,
    ],
)
def test_cleared_gradients_are_not_left(tmp_path: Path, train: Step) -> None:
    assert _left(tmp_path, train) == [0.0] * 4


def test_gradients_that_are_never_cleared_are_left(tmp_path: Path) -> None:
    assert _left(tmp_path, _never_cleared) == [1.0] * 4


def test_sparse_gradients_are_not_looked_at(tmp_path: Path) -> None:
    model = nn.EmbeddingBag(10, 3, sparse=True)
    optimizer = SGD(model.parameters(), 0.01)
    config = SaveConfig(save_interval=1)
    hook = Hook(tmp_path, save_config=config, include_collections=["optimizer_steps"])
    hook.register_module(model)
    for _ in range(3):
        model(torch.randint(0, 10, (4, 2))).mean().backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors
    assert create_trial(str(tmp_path)).tensor(NAME).value(1) == 0
