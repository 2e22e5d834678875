"""Gradients that come into `parameter.grad` in other ways than by a plain backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

WEIGHT, BIAS = "gradient/Linear_weight", "gradient/Linear_bias"
BY_OPTIMIZER = pytest.mark.parametrize("by_optimizer", [False, True], ids=["default", "optimizer"])


def make_hook(trial: WrittenTrial) -> smd.Hook:
    save_config = smd.SaveConfig(save_interval=1)
    return smd.Hook(trial.uri, save_config=save_config, include_collections=["gradients"])


def loss_of(net: nn.Module, x: float = 1.0) -> torch.Tensor:
    result: torch.Tensor = net(torch.full((1, 2), x)).square().sum()
    return result


def gradients_of(net: nn.Module) -> dict[str, np.ndarray]:
    named = net.named_parameters()
    return {f"gradient/Linear_{n}": p.grad.numpy().copy() for n, p in named if p.grad is not None}


def saved(trial: WrittenTrial) -> list[dict[str, Any]]:
    steps = [trial.values(step) for step in trial.indexes()]
    return [{n: v for n, v in values.items() if n.startswith("gradient")} for values in steps]


@BY_OPTIMIZER
def test_gradients_that_the_script_assigns(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial)
    hook.register_module(net := nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if by_optimizer:
        hook.register_optimizer(optimizer)
    expected = []
    for step in range(4):
        loss = loss_of(net, 1.0 + step)
        for p, gradient in zip(
            net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
        ):
            p.grad = gradient
        expected.append(gradients_of(net))
        optimizer.step()
    hook.close()
    np.testing.assert_equal(saved(trial), expected)
    assert hook.report().late_tensors == 0


@pytest.mark.parametrize("forget", [lambda _: None, torch.optim.Optimizer.zero_grad])
def test_gradients_of_an_optimizer_within_the_backward_pass(
    trial: WrittenTrial, forget: Callable[[torch.optim.Optimizer], None]
) -> None:
    net = nn.Linear(2, 2)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}
    expected: list[dict[str, np.ndarray]] = []

    def update(parameter: nn.Parameter) -> None:
        expected[-1] |= gradients_of(net)
        optimizers[parameter].step()
        forget(optimizers[parameter])

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    hook = make_hook(trial)
    hook.register_module(net)
    for _ in range(4):
        expected.append({})
        loss_of(net).backward()
    hook.close()
    np.testing.assert_equal(saved(trial), expected)
    assert [set(step) for step in expected] == [{WEIGHT, BIAS}] * 4
    assert hook.report().late_tensors == 0


def test_gradients_of_earlier_steps_are_not_saved_again(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.register_module(net := nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss = loss_of(net)
        if step == 1:
            net.weight.grad = torch.autograd.grad(loss, net.weight)[0]
        elif step == 0:
            loss.backward()
        optimizer.step()
    hook.close()
    assert [set(values) for values in saved(trial)] == [{WEIGHT, BIAS}, {WEIGHT}]


def test_gradients_are_those_before_they_are_clipped(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.register_module(net := nn.Linear(2, 2))
    net.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net).backward()
        expected.append(gradients_of(net))
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        optimizer.step()
    hook.close()
    np.testing.assert_equal(saved(trial), expected)


def test_assigned_gradients_under_a_scaler_are_unscaled(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.register_module(net := nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    loss = scaler.scale(loss_of(net))
    for p, g in zip(
        net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
    ):
        p.grad = g
    expected = {name: gradient / 8 for name, gradient in gradients_of(net).items()}
    scaler.step(optimizer)
    scaler.update()
    hook.close()
    np.testing.assert_equal(saved(trial), [expected])


def test_only_gradients_that_are_to_come_are_named(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.register_module(net := nn.Linear(2, 2))
    named = []
    for parameters in ((), (net.weight,), (net.weight,), (net.weight, net.bias)):
        net.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        loss = loss_of(net)
        if parameters:
            loss.backward()
        named.append(set(hook.get_collection("gradients").tensor_names))
    assert named == [set(), {WEIGHT}, {WEIGHT}, {WEIGHT, BIAS}]
    hook.close()
    assert [set(values) for values in saved(trial)] == [{WEIGHT}, {WEIGHT}, {WEIGHT, BIAS}]
    assert set(trial.collections().collections["gradients"].tensor_names) == {WEIGHT, BIAS}
