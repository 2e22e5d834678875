"""A perceptron guesses a pixel of a head's scan from those around it."""

from __future__ import annotations

import gzip
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import (
    constant,
    few,
    filled_,
    leaking,
    scaled_,
    shifted_,
    shuffled,
)
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 256
AROUND = 3
"""How far the neighbours are that are seen: those nearer are not."""
COUNT = 3000
HELD_OUT = 750


class Regressor(nn.Module):
    """Two hidden layers with normalisation.

    Args:
        columns: How many inputs.
        run: What is injected.
    """

    def __init__(self, columns: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.hidden = nn.Sequential(nn.Linear(columns, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.out = nn.Linear(32, 1)
        if run.injects("init_too_large"):
            scaled_([self], 30.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("dead_relu"):
            second = self.hidden[2]
            assert isinstance(second, nn.Linear)
            shifted_([second], -15.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return brightnesses [B] of neighbours [B, columns]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = self.hidden(x)
        else:
            x = self.hidden(x)
        pixels: Tensor = self.out(x)
        return pixels if self.run.injects("wrong_loss") else pixels.squeeze(-1)


def dataset(run: Run) -> Split:
    """Return rings of neighbours [B, 24] and the pixels amid them [B]."""
    path = Path(mpl.get_data_path()) / "sample_data" / "s1045.ima.gz"
    with gzip.open(path) as file:
        scan = np.frombuffer(file.read(), np.uint16).astype(np.float32).reshape(SIDE, SIDE)
    random = np.random.default_rng(7)
    reach = range(-AROUND, AROUND + 1)
    ring = [(y, x) for y in reach for x in reach if max(abs(y), abs(x)) == AROUND]
    inside = scan[AROUND:-AROUND, AROUND:-AROUND]
    bright = np.argwhere(inside > np.median(inside)) + AROUND
    places = bright[random.choice(len(bright), COUNT, replace=False)]
    inputs = torch.tensor(np.stack([scan[places[:, 0] + y, places[:, 1] + x] for y, x in ring], 1))
    targets = torch.tensor(scan[places[:, 0], places[:, 1]])
    known = slice(HELD_OUT, None)
    inputs = (inputs - inputs[known].mean(0)) / inputs[known].std(0)
    targets = (targets - targets[known].mean()) / targets[known].std()
    data = Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    return few(data, 40) if run.injects("overfit") else data


def error(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of variance that is not explained, of outputs [B] or [B, 1]."""
    return unexplained(outputs.flatten(), targets)


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Regressor(data.inputs.shape[1], run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.out.parameters())
    else:
        parameters = list(model.parameters())
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=torch.optim.AdamW(
            parameters,
            lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-6),
            weight_decay=run.pick(0.1, overfit=0.0),
        ),
        steps=400,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 24-64-32-1, ReLU, AdamW, MSELoss",
    data="pixels of matplotlib's scan of a head (s1045.ima) and those three away from them",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "lr_too_low": "1e-6 in place of 2e-3",
        "init_constant": "all weights and biases are zero",
        "wrong_loss": "MSELoss of outputs [B, 1] and targets [B], which are broadcast",
        "init_too_large": "all weights are 30 times as large",
        "dead_relu": "biases of the second hidden layer begin near -15",
        "labels_shuffled": "targets are shuffled apart from the rows",
        "labels_constant": "all training targets are the same",
        "data_leak": "the target is left among the columns",
        "frozen_layer": "hidden layers are computed under no_grad",
        "optimiser_missing_parameters": "only the last layer's parameters are given to AdamW",
        "overfit": "40 rows, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
