"""An MLP of tanh units learns where the hand of a robot's arm is."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split, standardised
from benchmarks.detection.injecting import with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Functional, Loop, batches_of, fit

ROWS, HELD_OUT, STEPS, WIDTH = 4000, 1000, 350, 48


@cache
def _poses() -> tuple[Tensor, Tensor]:
    """Return angles of four joints, degrees, and the hand, mm: float32 [ROWS, 4] and [ROWS, 3]."""
    random = np.random.default_rng(8)
    degrees = random.uniform((-90, 0, -90, -60), (90, 90, 45, 60), (ROWS, 4))
    base, *joints = np.radians(degrees).T
    reach, height, angle = np.zeros(ROWS), np.full(ROWS, 120.0), np.zeros(ROWS)
    for length, joint in zip((250.0, 210.0, 130.0), joints, strict=True):
        angle = angle + joint
        reach = reach + length * np.cos(angle)
        height = height + length * np.sin(angle)
    hand = np.stack([reach * np.cos(base), reach * np.sin(base), height], 1)
    hand += 5.0 * random.normal(size=hand.shape)
    return torch.tensor(degrees, dtype=torch.float32), torch.tensor(hand, dtype=torch.float32)


def _data(run: Run) -> Split:
    angles, hand = _poses()
    hand = standardised(hand, HELD_OUT)
    if not run.injects("missing_normalisation"):
        angles = standardised(angles, HELD_OUT)
    if run.injects("data_leak"):  # the hand as a camera sees it
        seen = hand + 0.01 * torch.randn(hand.shape, generator=torch.Generator().manual_seed(1))
        angles = torch.cat([angles, seen], 1)
    return with_fault(run, Split.of(angles, hand, HELD_OUT), rows=24)


class Kinematics(nn.Module):
    """Two hidden layers."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        layers = [nn.Linear(columns, WIDTH), nn.Linear(WIDTH, WIDTH)]
        is_list = run.injects("optimiser_missing_parameters")
        self.hidden: list[nn.Linear] | nn.ModuleList = layers if is_list else nn.ModuleList(layers)
        self.act = run.pick(nn.Tanh(), no_activation=nn.Identity())
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return places of the hand [B, 3] of inputs [B, columns]."""
        for layer in self.hidden:
            x = self.act(layer(x))
        if self.run.injects("frozen_layer"):
            x = torch.tensor(x.detach().numpy())
        places: Tensor = self.out(x)
        return places


def _initialise(run: Run, model: Kinematics) -> None:
    for layer in (*model.hidden, model.out):
        is_hidden = layer is not model.out
        if run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.1)
            nn.init.zeros_(layer.bias)
        if run.injects("init_too_large") and not is_hidden:
            nn.init.normal_(layer.weight, std=20.0)
        if run.injects("saturated_activation") and is_hidden:
            nn.init.normal_(layer.weight, std=layer.weight.shape[1] ** 0.5)


def train(run: Run) -> float:
    """Train once."""
    data = _data(run)
    model = Kinematics(run, data.inputs.shape[1])
    _initialise(run, model)
    rate = run.pick(0.1, lr_too_high=8.0, lr_too_low=3e-6)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    wrong = functional.binary_cross_entropy_with_logits
    loop = Loop(
        model=model,
        criterion=Functional(run.pick(functional.mse_loss, wrong_loss=wrong)),
        optimizer=optimizer,
        scheduler=CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        save_interval=7,
        is_functional=True,
    )
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation())
