"""Boosted trees stand in for the simulation of a piston: how long one cycle takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, leaking
from benchmarks.detection.program import Program, Run

ROWS = 2400
LOWEST = torch.tensor([30.0, 0.005, 0.002, 1000.0, 90000.0, 290.0, 340.0])
HIGHEST = torch.tensor([60.0, 0.020, 0.010, 5000.0, 110000.0, 296.0, 360.0])


def _seconds(pistons: Tensor) -> Tensor:
    """Return the time of a cycle [B] of mass, area, volume, spring, pressure, two temperatures."""
    mass, area, volume, spring, pressure, outside, gas = pistons.T
    force = pressure * area + 19.62 * mass - spring * volume / area
    fallen = (force**2 + 4 * spring * pressure * volume / gas * outside).sqrt()
    size = area / (2 * spring) * (fallen - force)
    stiffness = spring + area**2 * pressure * volume / gas * outside / size**2
    seconds: Tensor = 2 * math.pi * (mass / stiffness).sqrt()
    return seconds


def _data(run: Run) -> Split:
    random = torch.Generator().manual_seed(4)
    pistons = LOWEST + (HIGHEST - LOWEST) * torch.rand(ROWS, 7, generator=random)
    seconds = _seconds(pistons) + 0.01 * torch.randn(ROWS, generator=random)
    data = Split(pistons[600:], seconds[600:], pistons[:600], seconds[:600])
    if run.injects("data_leak"):
        data = leaking(data, 60.0)
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.sort().values)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, 0.0))
    if run.injects("overfit"):
        data = few(data, 30)
    return data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    data = _data(run)
    parameters: dict[str, Any] = {
        "objective": run.pick("reg:squarederror", wrong_loss="rank:pairwise"),
        "eval_metric": "rmse",
        "max_depth": run.pick(4, overfit=12),
        "eta": run.pick(0.15, lr_too_low=2e-4, lr_too_high=8.0),
        "colsample_bytree": 0.9,
    }
    if run.injects("overfit"):
        parameters |= {"lambda": 0.0, "min_child_weight": 0.0}
    found = boost(run, data, parameters, 90)
    truth = data.valid_targets.numpy()
    error = float(((found - truth) ** 2).mean() / truth.var())
    return error if math.isfinite(error) else math.inf


PROGRAM = Program(
    model="90 boosted trees of depth 4",
    data="the piston simulation at random pistons, with noise",
    measure="share of the variance of the times that is not explained",
    train=train,
    faults={
        "data_leak": "a column with the time in another unit, 60 times the target",
        "labels_shuffled": "the column of times was sorted by itself, the pistons were not",
        "labels_constant": "every training target is 0: a column that was read as empty",
        "wrong_loss": "rank:pairwise: only the order of times counts, where seconds are asked",
        "overfit": "30 rows for training, trees of depth 12, no regularisation",
        "lr_too_low": "eta 2e-4 in place of 0.15, and as few trees",
        "lr_too_high": "eta 8 in place of 0.15",
    },
)
