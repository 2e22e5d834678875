"""A perceptron learns how far a ball flies through air and wind."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

COUNT = 2400
HELD_OUT = 600
GRAVITY = 9.81
STEP_S = 0.05
FLIGHT_STEPS = 240


class Regressor(nn.Module):
    """Three hidden layers of tanh units.

    Args:
        columns: How many inputs.
        run: What is injected.
    """

    def __init__(self, columns: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.layers = nn.ModuleList([nn.Linear(columns, 48), nn.Linear(48, 48), nn.Linear(48, 48)])
        self.head = nn.Linear(48, 1)
        if run.injects("saturated_activation"):
            for layer in self.layers:
                assert isinstance(layer, nn.Linear)
                nn.init.normal_(layer.weight, std=10.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return distances [B] of throws [B, columns]."""
        for layer in self.layers:
            x = layer(x)
            if not self.run.injects("no_activation"):
                x = torch.tanh(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        distances: Tensor = self.head(x)[:, 0]
        return distances


def throws() -> tuple[Tensor, Tensor]:
    """Return throws [B, 5], in m/s, degrees, 1/m, m/s and m, and how far they go [B], metres."""
    random = torch.Generator().manual_seed(6)
    low = torch.tensor([10.0, 10.0, 0.0, -10.0, 0.0])
    high = torch.tensor([45.0, 80.0, 0.03, 10.0, 20.0])
    table = low + (high - low) * torch.rand(COUNT, 5, generator=random)
    speed, degrees, drag, wind, y = table.T.clone()
    angle = degrees * math.pi / 180
    x, vx, vy = torch.zeros(COUNT), speed * angle.cos(), speed * angle.sin()
    for _ in range(FLIGHT_STEPS):
        is_flying = (y >= 0).float()
        relative = vx - wind
        airspeed = (relative.square() + vy.square()).sqrt()
        x = x + is_flying * STEP_S * vx
        y = y + is_flying * STEP_S * vy
        vx = vx - STEP_S * drag * airspeed * relative
        vy = vy - STEP_S * (GRAVITY + drag * airspeed * vy)
    return table, x + torch.randn(COUNT, generator=random)


def dataset(run: Run) -> Split:
    """Return throws and distances, both of mean 0 and variance 1; a quarter is for validation."""
    inputs, targets = throws()
    known = slice(HELD_OUT, None)
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[known].mean(0)) / inputs[known].std(0)
        targets = (targets - targets[known].mean()) / targets[known].std()
    data = Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    return leaking(data) if run.injects("data_leak") else data


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Regressor(data.inputs.shape[1], run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.head.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.RMSprop(parameters, lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-7))
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.SmoothL1Loss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.993),
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 300), torch.split(data.valid_targets, 300), strict=True)
    )
    return fit(run, loop, batches_of(data, 50, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP 5-48-48-48-1, tanh, RMSprop, ExponentialLR, SmoothL1Loss",
    data="balls thrown through air with wind, simulated",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "lr_too_low": "1e-7 in place of 2e-3",
        "no_activation": "linear layers follow each other without tanh",
        "saturated_activation": "hidden weights are drawn with standard deviation 10",
        "init_constant": "all weights and biases are 0.5",
        "missing_normalisation": "columns and distances in their units",
        "wrong_loss": "nn.CrossEntropyLoss, which takes the batch for one row of scores",
        "labels_shuffled": "distances are shuffled apart from the throws",
        "data_leak": "the distance is left among the columns",
        "frozen_layer": "hidden layers are detached ahead of the last",
        "optimiser_missing_parameters": "only the last layer's parameters are given to RMSprop",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
