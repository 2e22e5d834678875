"""Norms of gradients after the backward pass and at the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

NORM, AT_STEP = "optimizer_steps/gradient_norm", "optimizer_steps/gradient_norm_at_step"
SCALE = 1024.0
Change = Callable[[nn.Module, SGD, "torch.amp.GradScaler"], object]


def unchanged(*_: object) -> None:
    """Leave the gradients as the backward pass made them."""


def clipped(net: nn.Module, *_: object) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)


def clipped_by_value(net: nn.Module, *_: object) -> None:
    nn.utils.clip_grad_value_(net.parameters(), 1e-4)


def zeroed(net: nn.Module, *_: object) -> None:
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()


def unscaled_and_clipped(net: nn.Module, optimizer: SGD, scaler: torch.amp.GradScaler) -> None:
    scaler.unscale_(optimizer)
    clipped(net)


def train(
    trial: WrittenTrial, change: Change, *, scales: bool, also: tuple[str, ...] = ("gradients",)
) -> list[tuple[float, float, float]]:
    """Return the norms of each saved step that has them, and the true norm at its step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=scales)
    config = smd.SaveConfig(save_interval=2)
    hook = smd.Hook(trial.uri, save_config=config, include_collections=["optimizer_steps", *also])
    hook.register_module(net)
    norms = []
    for _ in range(8):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(4, 6)).square().mean()).backward()
        change(net, optimizer, scaler)
        scaler.step(optimizer)
        scaler.update()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
    hook.close()
    assert hook.report().errors == {}
    found = []
    for step in range(0, 8, 2):
        values = trial.values(step)
        if NORM in values:
            found.append((float(values[NORM]), float(values[AT_STEP]), norms[step]))
    return found


@pytest.mark.parametrize("change", [clipped, clipped_by_value, zeroed])
def test_norms_show_what_clipping_leaves(trial: WrittenTrial, change: Change) -> None:
    found = train(trial, change, scales=False)
    assert len(found) >= 2
    for before, at_step, true in found:
        assert before > 0.05
        assert at_step == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize("scales", [False, True])
def test_gradients_that_the_script_does_not_change_are_not_measured(
    trial: WrittenTrial, *, scales: bool
) -> None:
    assert train(trial, unchanged, scales=scales) == []


@pytest.mark.parametrize(
    ("change", "expected"), [(clipped, 0.01 / SCALE), (unscaled_and_clipped, 0.01)]
)
def test_norms_do_not_contain_the_scale(
    trial: WrittenTrial, change: Change, expected: float
) -> None:
    found = train(trial, change, scales=True)
    assert len(found) >= 2
    for before, at_step, true in found:
        assert 0.05 < before < 10
        assert at_step == pytest.approx(true, rel=1e-4)
        assert at_step == pytest.approx(expected, rel=1e-3)


def test_norms_are_saved_if_nothing_else_is_awaited(trial: WrittenTrial) -> None:
    assert len(train(trial, zeroed, scales=False, also=())) >= 1


@pytest.mark.parametrize("clears", [True, False])
def test_gradients_that_are_cleared_before_the_step(trial: WrittenTrial, *, clears: bool) -> None:
    net = nn.Linear(6, 1)
    optimizer = SGD(net.parameters(), lr=1e-3)
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["optimizer_steps", "gradients"],
    )
    hook.register_module(net)
    for _ in range(8):
        if not clears:
            optimizer.zero_grad()
        net(torch.ones(4, 6)).square().mean().backward()
        if clears:
            optimizer.zero_grad()
        optimizer.step()
    hook.close()
    assert hook.report().errors == {}
    for step in (2, 4, 6):
        assert ("optimizer_steps/gradients_cleared" in trial.names(step)) is clears
