"""Modes and settings of torch that a training may use: inference mode, default device, AMP ..."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.device_rows import device_statistics

INF = float("inf")
LOSS = "Loss_output_0"  # of no module


def make_hook(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("include_collections", ["weights", "biases", "gradients"])
    return smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)


def test_evaluation_in_inference_mode_leaves_training_alone(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_regex="output")
    net = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 1))  # large enough for pooled buffers
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected = {}
    for step in range(6):
        training = step % 2 == 1
        hook.set_mode(smd.modes.TRAIN if training else smd.modes.EVAL)
        expected[step] = net[0].weight.detach().numpy().copy()
        with torch.inference_mode(not training):
            outputs = net(torch.ones(2, 256))
        if training:
            optimizer.zero_grad()
            outputs.sum().backward()
            optimizer.step()
        hook.flush()
    hook.close()
    assert not hook.report().errors
    assert [len(trial.names(step)) for step in range(6)] == [7, 12] * 3
    for step, value in expected.items():
        np.testing.assert_array_equal(trial.values(step)["Sequential_0.weight"], value)


def test_a_default_device_is_not_the_hooks(trial: WrittenTrial) -> None:
    hook = make_hook(trial, reduction_config=smd.ReductionConfig(["mean"], save_raw_tensor=True))
    net = nn.Linear(300, 300)
    hook.register_module(net)
    inputs, gradient = torch.ones(2, 300), torch.ones(2, 300)
    torch.set_default_device("meta")
    try:
        for _ in range(3):
            net(inputs).backward(gradient)
        hook.save_scalar("lr", 0.1)
        hook.close()
    finally:
        torch.set_default_device(None)
    assert not hook.report().errors
    for step in range(3):
        assert {"Linear_weight", "gradient/Linear_bias"} < set(trial.values(step))
        assert trial.statistics(step)["Linear_weight"]["size"] == 90000


def test_statistics_for_devices_are_made_anywhere() -> None:
    tensor = torch.arange(9000.0)
    with torch.inference_mode(), torch.device("meta"):
        first = device_statistics([tensor])
    assert device_statistics([tensor]) == first
    assert first[0][:6] == (9000, 0, 0, 0, 8999, 4499.5)


def test_tensors_without_elements_to_read_are_left_out(trial: WrittenTrial) -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.real = nn.Linear(3, 3)
            self.planned = nn.Linear(3, 3, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.planned(torch.ones(3, device="meta"))
            result: torch.Tensor = self.real(x)
            return result

    hook = make_hook(trial, include_regex="output")
    net = Partly()
    hook.register_module(net)
    for _ in range(2):
        net(torch.ones(3)).sum().backward()
    hook.close()
    assert not hook.report().errors
    parameters = {f"Partly_real.{name}" for name in ("weight", "bias")}
    expected = parameters | {f"gradient/{name}" for name in parameters}
    assert trial.names(1) == expected | {"real_output_0", "Partly_output_0", LOSS}


def test_lazy_parameters_are_saved_once_they_have_a_shape(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors
    last = {
        f"{kind}Sequential_2.{name}" for kind in ("", "gradient/") for name in ("weight", "bias")
    }
    assert trial.names(0) == last | {LOSS}
    assert [len(trial.names(step)) for step in (1, 2)] == [13, 13]
    assert trial.values(1)["Sequential_0.weight"].shape == (4, 3)


@pytest.mark.parametrize("collections", [["weights"], []], ids=["weights", "outputs only"])
def test_a_model_that_is_registered_after_the_first_step(
    trial: WrittenTrial, collections: list[str]
) -> None:
    class Second(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(x)
            return result

    hook = make_hook(trial, include_regex=["put_0$"], include_collections=collections)
    first, second = nn.Sequential(nn.Linear(3, 3)), Second()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    hook.register_module(first)
    for net in (first, second, second):
        if net is second and hook.report().steps_seen == 1:
            hook.register_module(second)
        optimizer.zero_grad()
        net(torch.ones(3)).sum().backward()
        optimizer.step()
    hook.close()
    expected = {f"{name}_{kind}put_0" for name in ("inner", "Second") for kind in ("in", "out")}
    expected |= {LOSS, *(["Second_inner.weight"] if collections else [])}
    for step in (1, 2):
        assert trial.names(step) == expected


def test_losses_may_be_registered_before_the_model(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net, loss = nn.Linear(2, 1), nn.MSELoss()
    hook.register_loss(loss)
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss(net(torch.ones(1, 2)), torch.zeros(1, 1)).backward()
        optimizer.step()
        hook.flush()
        assert len(trial.indexes()) == (step + 1 if step else 0)
    hook.close()


class ScaledTraining:
    """A model of one weight, whose loss is scaled; `d loss / d weight` is `slope`."""

    def __init__(self, hook: smd.Hook, *, fused: bool = False) -> None:
        self.net = nn.Linear(1, 1, bias=False)
        hook.register_module(self.net)
        make = torch.optim.Adam if fused else torch.optim.SGD
        self.optimizer = make(self.net.parameters(), lr=0.1, **({"fused": True} if fused else {}))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

    def step(self, slope: float, *, clip: float | None = None) -> None:
        self.optimizer.zero_grad()
        self.backward(slope)
        if clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.net.parameters(), clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def backward(self, slope: float) -> None:
        self.scaler.scale(self.net(torch.full((1, 1), slope)).sum()).backward()


def gradients(trial: WrittenTrial) -> list[float | None]:
    found = (trial.values(step).get("gradient/Linear_weight") for step in trial.indexes())
    return [None if value is None else float(value[0, 0]) for value in found]


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients_are_saved_as_the_optimizer_uses_them(
    trial: WrittenTrial, fused: bool
) -> None:
    hook = make_hook(trial)
    training = ScaledTraining(hook, fused=fused)
    training.step(INF)  # the scaler searches for a scale, and leaves the step out
    training.step(3.0)
    training.step(5.0, clip=1.0)
    training.step(INF)
    training.step(4.0)
    hook.close()
    assert gradients(trial) == [None, 3.0, pytest.approx(1.0, rel=1e-5), None, 4.0]
    assert not hook.report().errors
    assert hook.report().late_tensors == 0


def test_scaled_gradients_are_accumulated(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    training = ScaledTraining(hook)
    for _ in range(2):
        training.backward(1.0)
        training.step(2.0)
    hook.close()
    assert gradients(trial) == [None, 2.0, None, 2.0]


def test_two_optimizers_with_one_scaler(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.ones_(net[0].weight)
    nn.init.ones_(net[1].weight)
    hook.register_module(net)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.0) for part in net]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        net.zero_grad()
        scaler.scale(net(torch.full((1, 1), 2.0)).sum()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    hook.close()
    for step in (0, 2):
        values = trial.values(step)
        assert [float(values[f"gradient/Sequential_{i}.weight"][0, 0]) for i in (0, 1)] == [
            2.0,
            2.0,
        ]


def test_a_scaler_that_is_off_or_gone_changes_nothing(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = nn.Linear(1, 1, bias=False)
    hook.register_module(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(1))
    del scaler
    off = torch.amp.GradScaler("cpu", enabled=False)
    off.scale(net(torch.full((1, 1), 7.0)).sum()).backward()
    hook.close()
    assert gradients(trial) == [7.0]
