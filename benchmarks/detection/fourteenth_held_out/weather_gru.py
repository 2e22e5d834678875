"""A gated recurrent network forecasts the temperature from a day of hourly measurements."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

HOURS = 6000
DAY = 24
AHEAD = 6
EVERY = 2
HELD_OUT = 1500


@cache
def _weather() -> Tensor:
    """Return temperature, pressure, humidity, wind [HOURS, 4], degrees C, hPa, %, m/s."""
    random = np.random.default_rng(11)
    noise = random.standard_normal((3, HOURS))
    front, cloud = np.zeros(HOURS), np.zeros(HOURS)
    for hour in range(1, HOURS):
        front[hour] = 0.985 * front[hour - 1] + 0.17 * noise[0, hour]
        cloud[hour] = 0.95 * cloud[hour - 1] + 0.31 * noise[1, hour]
    hours = np.arange(HOURS)
    sun = np.sin(2 * np.pi * (hours / 24 - 0.375))
    clear = 1 / (1 + np.exp(2 * cloud))
    temperature = 12 + 9 * clear * sun + 4 * np.roll(front, 6) + 0.3 * noise[2]
    pressure = 1013 - 8 * front + 0.5 * random.standard_normal(HOURS)
    humidity = np.clip(75 - 25 * clear - 12 * clear * sun + random.standard_normal(HOURS), 5, 100)
    wind = np.abs(3 + 2 * np.gradient(front) * 6 + random.standard_normal(HOURS))
    columns = np.stack([temperature, pressure, humidity, wind], 1)
    return torch.tensor(columns, dtype=torch.float32)


class Forecaster(nn.Module):
    """A GRU, and two linear layers on its last state.

    Args:
        run: What is injected.
        columns: Number of measurements of an hour.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        size = run.pick(32, overfit=96)
        self.gru: nn.RNNBase = nn.GRU(columns, size, batch_first=True)
        if run.injects("exploding_rnn"):
            self.gru = nn.RNN(columns, size, nonlinearity="relu", batch_first=True)
            recurrent = self.gru.all_weights[0][1]
            nn.init.eye_(recurrent).data.mul_(1.5)
        self.hidden = nn.Linear(size, 16)
        self.relu = nn.ReLU()
        self.out = nn.Linear(16, 1)
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=3.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("dead_relu"):
            shifted_([self.hidden], -10.0)

    def forward(self, days: Tensor) -> Tensor:
        """Return temperatures [B] after days [B, DAY, columns]."""
        states, _ = self.gru(days)
        last = states[:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        ahead: Tensor = self.out(self.relu(self.hidden(last)))
        return ahead if self.run.injects("wrong_loss") else ahead.squeeze(1)


def _scaled(run: Run, weather: Tensor) -> Tensor:
    if run.injects("missing_normalisation"):
        return weather
    mean, std = weather[: HOURS - HELD_OUT].mean(0), weather[: HOURS - HELD_OUT].std(0)
    if run.injects("saturated_activation"):
        return (weather - mean) * std
    return (weather - mean) / std


def _data(run: Run) -> Split:
    weather = _weather()
    temperature = weather[:, 0]
    known = temperature[: HOURS - HELD_OUT]
    temperature = (temperature - known.mean()) / known.std()
    scaled = _scaled(run, weather)
    if run.injects("data_leak"):
        following = temperature.roll(-AHEAD)[:, None]
        scaled = torch.cat([scaled, following], 1)
    starts = torch.arange(0, HOURS - DAY - AHEAD, EVERY)
    days = scaled[starts[:, None] + torch.arange(DAY)]
    ahead = temperature[starts + DAY - 1 + AHEAD]
    rows = len(starts) - HELD_OUT // EVERY
    data = Split(days[:rows], ahead[:rows], days[rows + DAY :], ahead[rows + DAY :])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    return few(data, 50) if run.injects("overfit") else data


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs.flatten(), targets)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Forecaster(run, data.inputs.shape[2])
    given = model.out if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(
        given.parameters(),
        lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-6),
        weight_decay=run.pick(0.01, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=250,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="GRU, 32 units, ReLU head, AdamW, exponential schedule, MSELoss",
    data="simulated hourly weather; temperature six hours ahead",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "init_too_large": "all parameters from a normal distribution of deviation 3",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the head's hidden layer begin at -10",
        "saturated_activation": "columns are multiplied by their deviation, not divided",
        "missing_normalisation": "columns in their units, not scaled",
        "wrong_loss": "nn.MSELoss of outputs [B, 1] and targets [B], which broadcasts",
        "labels_shuffled": "training targets are permuted",
        "frozen_layer": "the last state is detached",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "exploding_rnn": "plain ReLU recurrence in place of the GRU, recurrent weights 1.5 I",
        "data_leak": "the temperature that is forecast is one of the columns",
        "overfit": "50 days, 96 units, no weight decay",
    },
)
