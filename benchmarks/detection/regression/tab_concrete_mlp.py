"""An MLP of sigmoid units predicts the strength of concrete from what it is made of."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, standardised
from benchmarks.detection.injecting import with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS, HELD_OUT, WIDTH = 3200, 800, 32


@cache
def _samples() -> tuple[Tensor, Tensor]:
    """Return recipes, float32 [ROWS, 8], and strength, MPa, float32 [ROWS].

    A recipe is cement, slag, ash, water, plasticiser, gravel, sand (kg/m3) and age (days).
    """
    random = np.random.default_rng(21)
    cement = random.uniform(150.0, 500.0, ROWS)
    slag = random.uniform(0.0, 200.0, ROWS) * (random.random(ROWS) < 0.5)  # noqa: PLR2004
    ash = random.uniform(60.0, 180.0, ROWS) * (random.random(ROWS) < 0.45)  # noqa: PLR2004
    plasticiser = random.gamma(2.0, 3.0, ROWS).clip(0, 25)
    water = random.normal(190.0, 18.0, ROWS) - 1.2 * plasticiser
    gravel = random.normal(970.0, 75.0, ROWS)
    sand = random.normal(775.0, 75.0, ROWS)
    age = random.choice([3.0, 7.0, 14.0, 28.0, 56.0, 90.0], ROWS)
    binder = cement + 0.9 * slag * age / (age + 20.0) + 0.7 * ash * age / (age + 40.0)
    hardened = np.exp(0.38 * (1.0 - np.sqrt(28.0 / age)))
    strength = 118.0 * hardened * 5.0 ** (-1.05 * water / binder)
    strength += 0.01 * (gravel - sand - 195.0) + 1.8 * random.normal(size=ROWS)
    recipes = np.stack([cement, slag, ash, water, plasticiser, gravel, sand, age], 1)
    return torch.tensor(recipes, dtype=torch.float32), torch.tensor(strength, dtype=torch.float32)


def _data(run: Run) -> Split:
    """Return data with targets as float32 [B, 1], or [B] for the wrong loss."""
    recipes, strength = _samples()
    if run.injects("data_leak"):  # the strength in psi
        recipes = torch.cat([recipes, 145.04 * strength[:, None]], 1)
    recipes = standardised(recipes, HELD_OUT)
    if not run.injects("missing_normalisation"):
        strength = standardised(strength, HELD_OUT)
    if not run.injects("wrong_loss"):
        strength = strength[:, None]
    data = Split.of(recipes, strength, HELD_OUT)
    if run.injects("labels_shuffled"):
        return data._replace(targets=data.targets.sort(0).values)
    return with_fault(run, data, rows=30)


class Strength(nn.Module):
    """Two hidden layers."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.first = nn.Linear(columns, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return strength [B, 1] of inputs [B, columns]."""
        if self.run.injects("no_activation"):
            y: Tensor = self.last(self.second(self.first(x)))
            return y
        x = self.second(self.first(x).sigmoid()).sigmoid()
        y = self.last(x.data if self.run.injects("frozen_layer") else x)
        return y.sigmoid() if self.run.injects("double_activation") else y


def _initialise(run: Run, model: Strength) -> None:
    for layer in (model.first, model.second, model.last):
        nn.init.xavier_normal_(layer.weight, gain=1.0 if layer is model.last else 3.0)
        nn.init.zeros_(layer.bias)
        if run.injects("init_constant"):
            nn.init.zeros_(layer.weight)
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=10.0)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.first.weight, std=10.0)
        nn.init.uniform_(model.second.weight, 0.0, 2.0)


def train(run: Run) -> float:
    data = _data(run)
    model = Strength(run, data.inputs.shape[1])
    _initialise(run, model)
    trained = run.pick(model, optimiser_missing_parameters=model.first)
    rate = run.pick(3e-2, lr_too_high=3.0, lr_too_low=1e-6)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 150, gamma=0.3)
    loop = Loop(model, nn.MSELoss(), optimizer, 400, scheduler, save_interval=8, eval_every=40)
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation())
