"""A network with batch normalisation and dropout predicts the strength of concrete."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS, HIDDEN = 3000, 64
AREA = 17.7
"""Of a test cylinder, thousands of square millimetres."""
PSI = 145.0
"""Pounds per square inch in one megapascal."""


@cache
def _tests() -> tuple[Tensor, Tensor]:
    """Return mixtures and strengths of test cylinders.

    A mixture is cement, slag, ash, water, plasticiser, gravel, sand (kg per cubic metre) and age
    (days), float32 [ROWS, 8]; strengths are float32 [ROWS, 1], megapascals.
    """
    random = np.random.default_rng(5)
    cement = random.uniform(120, 520, ROWS)
    slag = np.clip(random.normal(70, 80, ROWS), 0, 300)
    ash = np.clip(random.normal(50, 60, ROWS), 0, 200)
    water = random.uniform(130, 230, ROWS)
    plasticiser = np.clip(random.normal(6, 5, ROWS), 0, 25)
    gravel, sand = random.normal(970, 75, ROWS), random.normal(770, 75, ROWS)
    age = random.choice([3.0, 7.0, 14.0, 28.0, 56.0, 90.0, 180.0], ROWS)
    binder = cement + 0.8 * slag + 0.4 * ash
    ratio = water * (1 - 0.01 * plasticiser) / binder
    ripening = age / (age + 4 + 8 * slag / binder + 12 * ash / binder)
    strength = 150 / 8 ** np.clip(ratio, 0.3, 1.5) * ripening
    strength *= 1 - 0.1 * ((sand / (sand + gravel) - 0.44) / 0.04) ** 2 / 4
    strength = np.clip(strength + random.normal(0, 1.5, ROWS), 2, None)
    mixtures = np.stack([cement, slag, ash, water, plasticiser, gravel, sand, age], 1)
    return (
        torch.tensor(mixtures, dtype=torch.float32),
        torch.tensor(strength[:, None], dtype=torch.float32),
    )


def _data(run: Run) -> Split:
    """Return mixtures and strengths, both of mean 0 and variance 1, [B, 8] and [B, 1]."""
    mixtures, strengths = _tests()
    mixtures = torch.cat([mixtures[:, :7], mixtures[:, 7:].log()], 1)
    if run.injects("data_leak"):
        mixtures = torch.cat([mixtures, AREA * strengths], 1)
    valid = ROWS // 4
    mixtures = (mixtures - mixtures[valid:].mean(0)) / mixtures[valid:].std(0)
    if run.injects("missing_normalisation"):
        strengths = PSI * strengths
    else:
        strengths = (strengths - strengths[valid:].mean()) / strengths[valid:].std()
    data = Split(mixtures[valid:], strengths[valid:], mixtures[:valid], strengths[:valid])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.sort(0).values)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("wrong_loss"):
        data = data._replace(targets=data.targets[:, 0])
    return few(data, 48) if run.injects("overfit") else data


class Net(nn.Module):
    """Two blocks of a linear layer, batch normalisation, ReLU and dropout; a linear layer.

    Args:
        run: What is injected.
        columns: Width of the inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run

        def block(width: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(width, HIDDEN),
                nn.BatchNorm1d(HIDDEN),
                run.pick(nn.ReLU(), no_activation=nn.Identity()),
                nn.Dropout(run.pick(0.05, overfit=0.0)),
            )

        self.first, self.second = block(columns), block(HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, mixtures: Tensor) -> Tensor:
        """Return strengths [B, 1] of mixtures [B, columns]."""
        x = self.second(self.first(mixtures))
        if self.run.injects("frozen_layer"):
            x = torch.from_numpy(x.detach().numpy())
        strengths: Tensor = self.out(x)
        return strengths


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d) and run.injects("dead_relu"):
            nn.init.constant_(layer.bias, -8.0)
        if isinstance(layer, nn.Linear) and run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.0)
        if isinstance(layer, nn.Linear) and run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=10.0)


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs, targets.view(-1, 1))


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(), lr=run.pick(5e-3, lr_too_high=10.0, lr_too_low=1e-6)
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=360,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 360),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 8-64-64-1, batch normalisation, ReLU, dropout 0.05, Adam with cosine decay",
    data="simulated mixtures of concrete and their strength",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "10 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "no_activation": "both layers of ReLUs were forgotten",
        "init_too_large": "weights from a normal distribution of width 10",
        "init_constant": "all weights are 0",
        "dead_relu": "biases of the batch normalisation start at -8",
        "missing_normalisation": "strengths are in pounds per square inch, thousands of them",
        "wrong_loss": "targets of shape [B] for outputs [B, 1]: all pairs are compared",
        "labels_shuffled": "strengths for training were sorted, mixtures were not",
        "labels_constant": "all training targets are that of the first row",
        "frozen_layer": "what goes into the last layer was made into a numpy array and back",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the load at which the cylinder broke, strength times area, is a column",
        "overfit": "48 rows, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
