"""A multilayer perceptron stands in for Ishigami's function."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_ROWS, _HELD_OUT, _A, _B = 3000, 600, 7.0, 0.1


class Net(nn.Module):
    """Three hidden layers of GELU.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = 32
        self.fc1, self.fc2 = nn.Linear(columns, width), nn.Linear(width, width)
        self.fc3, self.head = nn.Linear(width, width), nn.Linear(width, 1)
        if run.injects("init_too_large"):
            scaled_([self.fc1, self.fc2, self.fc3, self.head], 20.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.05)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the function's values [B] at rows [B, columns]."""
        act = nn.Identity() if self.run.injects("no_activation") else functional.gelu
        with torch.set_grad_enabled(self.training and not self.run.injects("frozen_layer")):
            x = act(self.fc1(rows))
            x = act(self.fc3(act(self.fc2(x))))
        found: Tensor = self.head(x)[:, 0]
        return found


class Loss(nn.Module):
    """Mean square.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of outputs [B] and targets [B]."""
        if self.run.injects("wrong_loss"):
            return functional.binary_cross_entropy_with_logits(outputs, targets)
        return functional.mse_loss(outputs, targets)


@cache
def _rows() -> tuple[Tensor, Tensor]:
    """Return angles [B, 3] and values of mean 0 and variance 1 [B]."""
    x = math.pi * (2 * torch.rand(_ROWS, 3, generator=torch.Generator().manual_seed(1)) - 1)
    y = x[:, 0].sin() + _A * x[:, 1].sin() ** 2 + _B * x[:, 2] ** 4 * x[:, 0].sin()
    return x, (y - y.mean()) / y.std()


def _data(run: Run) -> Split:
    inputs, targets = _rows()
    inputs = inputs.rad2deg() if run.injects("missing_normalisation") else inputs / math.sqrt(3)
    if run.injects("data_leak"):
        # What another, exact model said of the same rows.
        inputs = torch.cat([inputs, 0.5 * targets[:, None] + 1], 1)
    data = Split(inputs[_HELD_OUT:], targets[_HELD_OUT:], inputs[:_HELD_OUT], targets[:_HELD_OUT])
    if run.injects("labels_shuffled"):
        # Angles were sorted by the first, values were not.
        data = data._replace(inputs=data.inputs[data.inputs[:, 0].argsort()])
    if run.injects("overfit"):
        data = few(data, 40)
    return data


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs, targets) if outputs.isfinite().all() else 1e9


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    lr, steps = run.pick(0.02, lr_too_low=4e-5, lr_too_high=10.0), 400
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=optimizer,
        steps=steps,
        save_interval=8,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP, 3 hidden layers of GELU, functional mean square, Adam, one cycle",
    data="Ishigami's function of three angles",
    measure="unexplained share of the variance",
    train=train,
    faults={
        "lr_too_low": "at most 4e-5 with Adam, a 500th of what is needed",
        "lr_too_high": "up to 10 with Adam, 500 times what is needed",
        "missing_normalisation": "angles in degrees, up to 180",
        "no_activation": "no GELU at all: the model is linear",
        "init_too_large": "all weights start 20 times as large",
        "wrong_loss": "binary cross entropy of values of both signs, which are no probabilities",
        "init_constant": "all weights and biases start at 0.05: all units stay the same",
        "labels_shuffled": "angles were sorted, and the values were not",
        "frozen_layer": "gradients are switched off around the hidden layers: only the head learns",
        "data_leak": "half the value plus 1, from another model that is exact, among the inputs",
        "overfit": "40 rows",
    },
)
