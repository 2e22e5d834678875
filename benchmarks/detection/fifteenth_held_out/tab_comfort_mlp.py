"""An MLP with one logit tells whether somebody feels comfortable in a room."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS, HELD_OUT, STEPS = 4000, 1000, 300


@cache
def _votes() -> tuple[Tensor, Tensor]:
    """Return what is measured, float32 [ROWS, 6], and who is comfortable, int64 [ROWS].

    Measured are temperature (degrees C), humidity (%), CO2 (ppm), speed of the air (m/s), what
    somebody does (W/m2) and wears (clo).
    """
    random = np.random.default_rng(5)
    temperature = random.normal(23.0, 3.5, ROWS)
    humidity = random.normal(50.0, 12.0, ROWS).clip(15, 95)
    carbon = random.normal(800.0, 200.0, ROWS).clip(400, 2000)
    air = random.gamma(3.0, 0.06, ROWS)
    work = random.uniform(58.0, 116.0, ROWS)
    clothes = random.uniform(0.3, 1.2, ROWS)
    ideal = 29.0 - 6.0 * clothes - 0.07 * (work - 58.0) + 4.0 * air - 0.02 * (humidity - 50.0)
    felt = temperature - ideal + 0.4 * random.normal(size=ROWS)
    comfortable = np.abs(felt) < 2.5  # noqa: PLR2004 - degrees
    measured = np.stack([temperature, humidity, carbon, air, work, clothes], 1)
    return (
        torch.tensor(measured, dtype=torch.float32),
        torch.tensor(comfortable.astype(np.int64)),
    )


def _data(run: Run) -> Split:
    """Return data with targets as float32 [B, 1]."""
    measured, labels = _votes()
    if not run.injects("missing_normalisation"):
        known = measured[HELD_OUT:]
        measured = (measured - known.mean(0)) / known.std(0)
    data = Split(measured[HELD_OUT:], labels[HELD_OUT:], measured[:HELD_OUT], labels[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("overfit"):
        data = few(data, 48)
    return data._replace(
        targets=data.targets[:, None].float(), valid_targets=data.valid_targets[:, None].float()
    )


class Net(nn.Module):
    """Two hidden layers of ReLUs.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(32, overfit=128)
        self.fc1 = nn.Linear(columns, width)
        self.fc2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        self.act = nn.Identity() if run.injects("no_activation") else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, 1] of inputs [B, columns]."""
        x = self.act(self.fc2(self.act(self.fc1(x))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        logits: Tensor = self.out(x)
        return logits.sigmoid() if self.run.injects("double_activation") else logits


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    layers = (model.fc1, model.fc2, model.out)
    for layer in layers:
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=3.0)
        if run.injects("init_constant"):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
    if run.injects("dead_relu"):
        nn.init.constant_(model.fc2.bias, -10.0)


def _predicted(outputs: Tensor) -> Tensor:
    """Return zeros and ones, float32 [B, 1], of logits [B, 1]."""
    return (outputs > 0).float()


def _error(outputs: Tensor, targets: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1.0
    return float((_predicted(outputs) != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(5e-3, lr_too_high=2.0, lr_too_low=5e-7)
        ),
        steps=STEPS,
        save_interval=5,
        eval_every=25,
        predict=_predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 6-32-32-1, ReLU, one logit, Adam",
    data="simulated votes on the climate of rooms",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "2 in place of 5e-3",
        "lr_too_low": "5e-7 in place of 5e-3",
        "no_activation": "no ReLU between the layers",
        "double_activation": "sigmoid ahead of BCEWithLogitsLoss",
        "init_too_large": "weights from a normal distribution of width 3",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the second hidden layer start at -10",
        "missing_normalisation": "inputs in the units in which they were measured",
        "wrong_loss": "CrossEntropyLoss over the one logit",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 100 of those who feel comfortable",
        "frozen_layer": "detach ahead of the last layer",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label is one of the columns",
        "overfit": "48 rows, four times as wide",
        "stalled": "hangs after 60 % of the steps",
    },
)
