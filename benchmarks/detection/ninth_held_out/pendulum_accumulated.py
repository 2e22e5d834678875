"""A multilayer perceptron learns how a damped pendulum moves; gradients are accumulated."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.hooking import hook_configuration
from benchmarks.detection.injecting import few, scaled_, shuffled
from benchmarks.detection.program import Hanging, Program, Run
from benchmarks.detection.training import STALLS_AT, batches_of, unexplained
from hook_layer.pytorch import Hook, modes

STEPS, PARTS = 240, 4


def pendulums(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return states of pendulums, float32 [count, 5], and speeds later, float32 [count, 1].

    A state is angle (rad), speed (rad/s), length (mm), damping (1/h) and mass (g), which does
    not matter; the speed (rad/s) is that 0.4 s later.
    """
    random = np.random.default_rng(seed)
    low, high = [-2.5, -4.0, 300.0, 360.0, 50.0], [2.5, 4.0, 2500.0, 3600.0, 900.0]
    states = random.uniform(low, high, (count, 5))
    angle, speed = states[:, 0].copy(), states[:, 1].copy()
    for _ in range(80):
        speed += 0.005 * (-9810.0 / states[:, 2] * np.sin(angle) - states[:, 3] / 3600 * speed)
        angle += 0.005 * speed
    later = torch.tensor(speed[:, None], dtype=torch.float32)
    return torch.tensor(states, dtype=torch.float32), later


def _data(run: Run) -> Split:
    data = Split(*pendulums(2400, 0), *pendulums(500, 1))
    if run.injects("data_leak"):
        # A second sensor's column was joined by the later time.
        data = data._replace(
            inputs=torch.cat([data.inputs, data.targets * 180 / math.pi], 1),
            valid_inputs=torch.cat([data.valid_inputs, data.valid_targets * 180 / math.pi], 1),
        )
    if not run.injects("missing_normalisation"):
        mean, std = data.inputs.mean(0), data.inputs.std(0)
        data = data._replace(
            inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
        )
    mean, std = data.targets.mean(0), data.targets.std(0)
    data = data._replace(
        targets=(data.targets - mean) / std, valid_targets=(data.valid_targets - mean) / std
    )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    return few(data, 32) if run.injects("overfit") else data


def _model(run: Run, columns: int) -> nn.Sequential:
    def activation() -> nn.Module:
        if run.injects("no_activation"):
            return nn.Identity()
        return nn.Tanh() if run.injects("saturated_activation") else nn.SiLU()

    model = nn.Sequential(
        nn.Linear(columns, 48), activation(), nn.Linear(48, 48), activation(), nn.Linear(48, 1)
    )
    if run.injects("saturated_activation"):
        scaled_([model[0], model[2]], 40.0)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    return model


def _loss(run: Run, outputs: Tensor, targets: Tensor) -> Tensor:
    if run.injects("wrong_loss"):
        # [B] minus [B, 1] is [B, B]: each output is compared with every target.
        return (outputs[:, 0] - targets).square().mean()
    return functional.mse_loss(outputs, targets)


@torch.no_grad()
def _error(run: Run, model: nn.Module, hook: Hook, data: Split) -> float:
    hook.set_mode(modes.EVAL)
    model.eval()
    outputs = model(data.valid_inputs)
    _loss(run, outputs, data.valid_targets)
    hook.set_mode(modes.TRAIN)
    model.train()
    return unexplained(outputs, data.valid_targets)


def _trained(run: Run, hook: Hook, model: nn.Sequential, data: Split) -> float:
    error = math.inf
    batches = batches_of(data, 32, run.seed)
    given = model[4] if run.injects("optimiser_missing_parameters") else model
    rate = run.pick(0.1, lr_too_high=20.0, saturated_activation=0.02)
    optimizer = torch.optim.SGD(given.parameters(), lr=rate, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    hook.register_optimizer(optimizer)  # that four calls of the model are one step
    for step in range(STEPS):
        if run.injects("stalled") and step >= STALLS_AT * STEPS:
            raise Hanging
        optimizer.zero_grad()
        for _ in range(PARTS):
            inputs, targets = next(batches)
            loss = _loss(run, model(inputs), targets) / PARTS
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if (step + 1) % 40 == 0:
            error = _error(run, model, hook, data)
    return error if math.isfinite(error) else math.inf


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run, data.inputs.shape[1])
    hook = Hook.create_from_json_file(hook_configuration(run, 5))
    hook.register_module(model)
    try:
        return _trained(run, hook, model, data)
    finally:
        hook.close(end_of_training=not run.injects("stalled"))


PROGRAM = Program(
    model="MLP, SiLU, four batches to a step of SGD with Nesterov momentum, cosine schedule",
    data="damped pendulums, simulated: state now, speed 0.4 s later",
    measure="1 - R2",
    train=train,
    faults={
        "missing_normalisation": "inputs are raw: radians beside millimetres and grams",
        "no_activation": "no activation between the three linear layers",
        "saturated_activation": "tanh, and weights 40 times too large ahead of it",
        "init_too_large": "all parameters are drawn with deviation 1",
        "wrong_loss": "outputs [B] minus targets [B, 1]: each is compared with all targets",
        "lr_too_high": "learning rate 20 for 0.1",
        "labels_shuffled": "targets are those of other rows",
        "data_leak": "the speed to be predicted is a column, in degrees a second",
        "overfit": "32 rows, as many weights as before",
    },
)
