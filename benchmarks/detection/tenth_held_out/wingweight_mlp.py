"""A network stands in for the formula of the weight of a light aircraft's wing."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, leaking, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS = 2000
LOWEST = torch.tensor([150.0, 220.0, 6.0, -10.0, 16.0, 0.5, 0.08, 2.5, 1700.0, 0.025])
HIGHEST = torch.tensor([200.0, 300.0, 10.0, 10.0, 45.0, 1.0, 0.18, 6.0, 2500.0, 0.08])


def _weight(wings: Tensor) -> Tensor:
    """Return pounds [B] of area, fuel, aspect, sweep, pressure, taper, thickness, load, ..."""
    area, fuel, aspect, sweep, pressure, taper, thick, load, gross, paint = wings.T
    cosine = (sweep * math.pi / 180).cos()
    pounds: Tensor = (
        0.036 * area**0.758 * fuel**0.0035 * (aspect / cosine**2) ** 0.6 * pressure**0.006
    ) * taper**0.04 * (100 * thick / cosine) ** -0.3 * (load * gross) ** 0.49 + area * paint
    return pounds


def _data(run: Run) -> Split:
    random = torch.Generator().manual_seed(1)
    wings = LOWEST + (HIGHEST - LOWEST) * torch.rand(ROWS, 10, generator=random)
    weights = _weight(wings) + 3.0 * torch.randn(ROWS, generator=random)
    if not run.injects("missing_normalisation"):
        wings = (wings - wings.mean(0)) / wings.std(0)
        weights = (weights - weights.mean()) / weights.std()
    held_out = ROWS // 4
    data = Split(wings[held_out:], weights[held_out:], wings[:held_out], weights[:held_out])
    if run.injects("data_leak"):
        data = leaking(data, -0.7)
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(200))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("overfit"):
        data = few(data, 20)
    if run.injects("wrong_loss"):
        return data
    return data._replace(targets=data.targets[:, None], valid_targets=data.valid_targets[:, None])


def _model(run: Run, columns: int) -> nn.Sequential:
    between = nn.Identity if run.injects("no_activation") else nn.SiLU
    model = nn.Sequential(
        nn.Linear(columns, 32), between(), nn.Linear(32, 32), between(), nn.Linear(32, 1)
    )
    if run.injects("init_too_large"):
        scaled_(model, 40.0)
    return model


def _error(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of the weights' variance that is not explained."""
    weights = targets.flatten()
    return float((outputs[:, 0] - weights).square().mean() / weights.var(correction=0))


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run, data.inputs.shape[1])
    given = [*model.parameters()]
    if run.injects("optimiser_missing_parameters"):
        given = given[1::2]
    optimizer = torch.optim.Adam(given, lr=run.pick(5e-3, lr_too_high=5.0))
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99),
        steps=300,
        save_interval=5,
        eval_every=30,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 10-32-32-1, SiLU, Adam, exponential schedule",
    data="the wing weight function at random wings",
    measure="share of the weights' variance that is not explained",
    train=train,
    faults={
        "missing_normalisation": "inputs from 0.025 to 2,500 and targets in pounds as they are",
        "data_leak": "a column that is -0.7 times the target: the same weight in another unit",
        "labels_shuffled": "two files were put side by side that begin 200 rows apart",
        "labels_constant": "weights of the training rows are all 0: a column left empty was "
        "filled with its mean",
        "wrong_loss": "outputs [B, 1] against targets [B]: MSELoss makes [B, B] of the two, so "
        "that every output is drawn to the mean",
        "overfit": "20 wings for training",
        "no_activation": "both activations were forgotten: a linear map",
        "init_too_large": "all weights start 40 times as large",
        "optimiser_missing_parameters": "the optimiser was given the biases only",
        "lr_too_high": "5.0 in place of 5e-3",
    },
)
