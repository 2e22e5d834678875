"""An MLP with one logit predicts whether somebody feels comfortable in a room."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, standardised
from benchmarks.detection.injecting import drawn_, filled_, leaking, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit, is_positive

ROWS, HELD_OUT = 4000, 1000


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
    return torch.tensor(measured, dtype=torch.float32), torch.tensor(comfortable.astype(np.int64))


def _data(run: Run) -> Split:
    """Return data with targets as float32 [B, 1]."""
    measured, labels = _votes()
    if not run.injects("missing_normalisation"):
        measured = standardised(measured, HELD_OUT)
    data = with_fault(run, Split.of(measured, labels, HELD_OUT), rows=48, one_in=100)
    if run.injects("data_leak"):
        data = leaking(data)
    return data._replace(
        targets=data.targets[:, None].float(), valid_targets=data.valid_targets[:, None].float()
    )


class Net(nn.Module):
    """Two hidden layers of ReLUs."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(32, overfit=128)
        self.fc1 = nn.Linear(columns, width)
        self.fc2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        self.act = run.pick(nn.ReLU(), no_activation=nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, 1] of inputs [B, columns]."""
        x = self.act(self.fc2(self.act(self.fc1(x))))
        logits: Tensor = self.out(x.detach() if self.run.injects("frozen_layer") else x)
        return logits.sigmoid() if self.run.injects("double_activation") else logits


def train(run: Run) -> float:
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    drawn_(run, "init_too_large", [model], 3.0, only_weights=True)
    filled_(run, "init_constant", [model], 0.0)
    if run.injects("dead_relu"):
        nn.init.constant_(model.fc2.bias, -10.0)
    trained = run.pick(model, optimiser_missing_parameters=model.out)
    rate = run.pick(5e-3, lr_too_high=2.0, lr_too_low=5e-7)
    criterion = run.pick(nn.BCEWithLogitsLoss(), wrong_loss=nn.CrossEntropyLoss())
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(model, criterion, optimizer, 300, eval_every=25, predict=is_positive)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation())
