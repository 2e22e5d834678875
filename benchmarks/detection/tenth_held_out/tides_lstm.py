"""An LSTM forecasts the level of the sea from the hours before."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

HOURS = 24
AHEAD = 6
PERIODS = (12.42, 12.0, 12.66, 25.82, 23.93)
HEIGHTS = (1.5, 0.6, 0.35, 0.3, 0.4)


class Forecast(nn.Module):
    """An LSTM, and a linear layer on its last output.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, levels: Tensor) -> Tensor:
        """Return the level later [B, 1] of those of some hours [B, hours, 1]."""
        states, _ = self.lstm(levels)
        if self.run.injects("frozen_layer"):
            states = states.detach()
        level: Tensor = self.out(states[:, -1])
        return level


class LogCosh(nn.Module):
    """The logarithm of the hyperbolic cosine of the error: nearly square, then nearly linear.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, found: Tensor, levels: Tensor) -> Tensor:
        """Return the mean over levels [B, 1]."""
        off = found - levels
        if self.run.injects("wrong_loss"):
            return off.mean()
        return (off + nn.functional.softplus(-2 * off) - math.log(2)).mean()


def _levels() -> Tensor:
    """Return metres above a mark, at every hour of four months [hours]."""
    hours = torch.arange(2900).double()
    random = torch.Generator().manual_seed(3)
    level = torch.full_like(hours, 4.0)
    for period, height in zip(PERIODS, HEIGHTS, strict=True):
        phase = 2 * math.pi * torch.rand(1, generator=random).double()
        level = level + height * (2 * math.pi * hours / period + phase).cos()
    weather = torch.randn(len(hours), generator=random).double().cumsum(0)
    weather = weather - nn.functional.avg_pool1d(weather[None], 97, 1, 48)[0]
    return (level + 0.02 * weather).float() + 0.05 * torch.randn(len(hours), generator=random)


def _data(run: Run) -> Split:
    levels = _levels()
    if run.injects("missing_normalisation"):
        levels = 1000.0 * levels
    else:
        levels = (levels - levels[:2100].mean()) / levels[:2100].std()
    length = HOURS + AHEAD if run.injects("data_leak") else HOURS
    starts = torch.arange(len(levels) - HOURS - AHEAD)
    inputs = levels[starts[:, None] + torch.arange(length)][:, :, None]
    targets = levels[starts + HOURS + AHEAD - 1][:, None]
    data = Split(inputs[:2100], targets[:2100], inputs[2150:], targets[2150:])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 8)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, 1.5))
    if run.injects("overfit"):
        data = few(data, 20)
    return data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Forecast(run)
    if run.injects("saturated_activation"):
        scaled_([model.lstm], 40.0)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(given.parameters(), lr=run.pick(1e-2, lr_too_low=1e-5))
    loop = Loop(
        model=model,
        criterion=LogCosh(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300),
        steps=300,
        save_interval=5,
        eval_every=30,
        clip=1.0,
        is_own_module=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="LSTM of 24 units, Adam, clipped gradients, cosine schedule, log-cosh loss",
    data="simulated tides: five constituents, weather, noise",
    measure="share of the levels' variance that is not explained",
    train=train,
    faults={
        "missing_normalisation": "levels in millimetres above the mark, about 4,000",
        "data_leak": "windows are six hours too long: their last hour is the one to forecast",
        "labels_shuffled": "targets were shuffled without their windows",
        "labels_constant": "every training target is 1.5: a sensor that was stuck",
        "wrong_loss": "the mean of signed errors: it has no lower bound",
        "saturated_activation": "weights of the LSTM start 40 times as large: gates and states are "
        "at their ends",
        "frozen_layer": "outputs of the LSTM are detached: it stays as it was drawn",
        "optimiser_missing_parameters": "the optimiser was given the last layer only",
        "lr_too_low": "1e-5 in place of 1e-2",
        "overfit": "20 windows for training, of the same day",
    },
)
