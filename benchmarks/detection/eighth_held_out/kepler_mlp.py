"""An MLP with tanh solves Kepler's equation."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS, HELD_OUT = 2400, 600


def orbits() -> Split:
    """Return mean anomaly, rad, and eccentricity, float32 [B, 2], and E - M, rad, [B]."""
    random = torch.Generator().manual_seed(0)
    mean = (2 * torch.rand(ROWS + HELD_OUT, generator=random) - 1) * math.pi
    eccentricity = 0.9 * torch.rand(ROWS + HELD_OUT, generator=random)
    found = mean.clone()
    for _ in range(60):
        slope = 1 - eccentricity * found.cos()
        found = found - 0.7 * (found - eccentricity * found.sin() - mean) / slope
    inputs, targets = torch.stack([mean, eccentricity], 1), found - mean
    return Split(inputs[:ROWS], targets[:ROWS], inputs[ROWS:], targets[ROWS:])


class Net(nn.Module):
    """Four linear layers with tanh between them."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.is_linear = run.injects("no_activation")
        self.is_wide = run.injects("wrong_loss")
        sizes = (columns, 32, 32, 32)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.tanh = nn.ModuleList(nn.Tanh() for _ in self.hidden)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return E - M [B], scaled, of inputs [B, columns]."""
        for layer, tanh in zip(self.hidden, self.tanh, strict=True):
            x = layer(x) if self.is_linear else tanh(layer(x))
        out: Tensor = self.head(x)
        return out if self.is_wide else out[:, 0]


class Broadcast(nn.Module):
    """The squared error between all outputs and all targets, as broadcasting makes it."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over outputs [B, 1] and targets [B]."""
        return (outputs - targets).square().mean()


def _data(run: Run) -> Split:
    data = orbits()
    if run.injects("missing_normalisation"):
        degrees = torch.tensor([180 / math.pi, 1.0])
        return Split(
            data.inputs * degrees,
            data.targets * 180 / math.pi,
            data.valid_inputs * degrees,
            data.valid_targets * 180 / math.pi,
        )
    mean, std = data.inputs.mean(0), data.inputs.std(0)
    scale = data.targets.std()
    data = Split(
        (data.inputs - mean) / std,
        data.targets / scale,
        (data.valid_inputs - mean) / std,
        data.valid_targets / scale,
    )
    if run.injects("data_leak"):
        data = data._replace(
            inputs=torch.cat([data.inputs, data.targets[:, None]], 1),
            valid_inputs=torch.cat([data.valid_inputs, data.valid_targets[:, None]], 1),
        )
    return shuffled(data, 7) if run.injects("labels_shuffled") else data


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    if run.injects("saturated_activation"):
        for layer in model.hidden:
            nn.init.normal_(layer.weight, std=5.0)  # type: ignore[arg-type]
    trained = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(trained.parameters(), lr=run.pick(1e-2, lr_too_low=1e-5))
    loop = Loop(
        model=model,
        criterion=Broadcast() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=optimizer,
        steps=360,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 120, 0.4),
    )
    valid = [
        (data.valid_inputs[rows : rows + 200], data.valid_targets[rows : rows + 200])
        for rows in range(0, len(data.valid_targets), 200)
    ]

    def error(outputs: Tensor, targets: Tensor) -> float:
        return unexplained(outputs.flatten(), targets)

    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="MLP, 3 hidden layers, tanh, Adam, step schedule",
    data="solutions of Kepler's equation",
    measure="1 - R2",
    train=train,
    faults={
        "no_activation": "the loop over the layers leaves out tanh, so the model is linear",
        "saturated_activation": "hidden weights are of standard deviation 5: tanh is flat",
        "missing_normalisation": "angles of input and target in degrees, nothing is scaled",
        "data_leak": "the target is a third column of the inputs",
        "wrong_loss": "outputs [B, 1] minus targets [B] broadcast: each output is to fit every row",
        "labels_shuffled": "the training targets are those of other rows",
        "optimiser_missing_parameters": "the optimiser is given the last layer only",
        "lr_too_low": "learning rate 1e-5 instead of 1e-2, 1,000 times too low",
        "stalled": "hangs after 60 % of the steps",
    },
)
