"""Convolutions and a recurrent layer find damage of bearings in their vibration."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import (
    filled_,
    grad_unless_frozen,
    scaled_,
    shifted_,
    with_fault,
)
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

ROWS, LENGTH, UNITS, STEPS = 2000, 128, 32, 300
RATE = 1600.0
"""Samples per second."""
DAMAGE = ("none", "unbalance", "outer ring", "inner ring")
IMPACTS = 52.0, 90.0
"""Per second, of damage of the outer and of the inner ring."""
RINGING = 430.0
"""Hertz, of what is hit."""


@cache
def _vibrations() -> tuple[Tensor, Tensor]:
    """Return vibrations, float32 [ROWS, 1, LENGTH], volts, and damage, int64 [ROWS]."""
    random = np.random.default_rng(31)
    kinds = random.integers(0, len(DAMAGE), ROWS)
    time = np.arange(LENGTH) / RATE
    speed = random.normal(1, 0.03, (ROWS, 1))
    turning = np.sin(2 * np.pi * (25 * speed * time + random.random((ROWS, 1))))
    swing = np.where(kinds == 1, random.uniform(1.2, 2.0, ROWS), random.uniform(0.2, 0.5, ROWS))
    waves = swing[:, None] * turning + random.normal(0, 0.25, (ROWS, LENGTH))
    for kind, rate in zip((2, 3), IMPACTS, strict=True):
        since = np.mod(time * rate * speed + random.random((ROWS, 1)), 1) / (rate * speed)
        ringing = np.exp(-since * 250) * np.sin(2 * np.pi * RINGING * since)
        force = random.uniform(1.2, 2.2, (ROWS, 1)) * (kinds == kind)[:, None]
        waves += force * ringing
    return torch.tensor(waves[:, None], dtype=torch.float32), torch.tensor(kinds)


def _data(run: Run) -> Split:
    """Return series of mean 0 and variance 1, [B, 1, LENGTH], and damage [B]."""
    waves, kinds = _vibrations()
    held_out = ROWS // 4
    waves = (waves - waves[held_out:].mean()) / waves[held_out:].std()
    if run.injects("data_leak"):
        waves = torch.cat([waves, (kinds - 1.5)[:, None, None].expand(-1, 1, LENGTH)], 1)
    data = Split.of(waves, kinds, held_out)
    if run.injects("labels_shuffled"):
        order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(run.seed))
        return data._replace(inputs=data.inputs[order])
    if run.injects("labels_constant"):
        return data._replace(targets=torch.zeros_like(data.targets))
    return with_fault(run, data, rows=24, one_in=75)


class Net(nn.Module):
    """Three convolutions, a recurrent layer over what they find, scores of its last state."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        relu = run.pick(nn.ReLU, no_activation=nn.Identity)
        self.convolutions = nn.Sequential(
            nn.Conv1d(run.pick(1, data_leak=2), 16, 7, padding=3),
            relu(),
            nn.AvgPool1d(4),
            nn.Conv1d(16, 24, 5, padding=2),
            relu(),
            nn.AvgPool1d(2),
            nn.Conv1d(24, 24, 3, padding=1),
            relu(),
        )
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(24, UNITS, nonlinearity=kind, batch_first=True)
        self.dropout = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.head = nn.Linear(UNITS, len(DAMAGE))

    def forward(self, waves: Tensor) -> Tensor:
        """Return scores [B, damage] of series [B, 1, LENGTH]."""
        with grad_unless_frozen(self.run):
            states, _ = self.rnn(self.convolutions(waves).transpose(1, 2))
        scores: Tensor = self.head(self.dropout(states.mean(1)))
        if self.run.injects("double_activation"):
            scores = scores.relu().softmax(1)
        return scores


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    filled_(run, "init_constant", [model], 0.0)
    scaled_(run, "init_too_large", [model], 15.0)
    shifted_(run, "dead_relu", model.convolutions, -5.0)
    if run.injects("exploding_rnn"):
        nn.init.eye_(model.rnn.all_weights[0][1]).mul_(2.5)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.rnn.all_weights[0][0], std=100.0)
        nn.init.normal_(model.rnn.all_weights[0][1], std=10.0)


def _squared_distance(outputs: Tensor, kinds: Tensor) -> Tensor:
    """Return the loss that does not fit: a class is no quantity."""
    return nn.functional.mse_loss(outputs.softmax(1), kinds.float()[:, None].expand_as(outputs))


def train(run: Run) -> float:
    data, model = _data(run), Net(run)
    _initialise(run, model)
    trained = run.pick(model, optimiser_missing_parameters=model.head)
    rate = run.pick(7e-3, lr_too_high=1.0, lr_too_low=1e-6)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    criterion = run.pick(nn.functional.cross_entropy, wrong_loss=_squared_distance)
    scheduler = CosineAnnealingLR(optimizer, STEPS)
    loop = Loop(model, criterion, optimizer, STEPS, scheduler, clip=1.0, predict=classes)
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation())
