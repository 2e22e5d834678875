"""A GRU predicts the flow of a river from the weather of the last weeks."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

DAYS, LENGTH, UNITS, TRAIN = 4800, 20, 40, 4000
YEAR = 365.25
CUBIC_METRES = 1.5
"""Per second, for one millimetre of runoff a day."""


@cache
def _river() -> tuple[Tensor, Tensor]:
    """Return days of rain (mm), temperature (degrees C), season, [DAYS, 4], and flow [DAYS, 1]."""
    random = np.random.default_rng(3)
    day = 2 * np.pi * np.arange(DAYS) / YEAR
    weather = np.zeros(DAYS)
    for at in range(1, DAYS):
        weather[at] = 0.7 * weather[at - 1] + random.normal(0, 1)
    temperature = 9 - 10 * np.cos(day) + 2.5 * weather
    rain = np.where(random.random(DAYS) < 0.4, random.gamma(0.9, 8, DAYS), 0)  # noqa: PLR2004
    snow, soil, ground, flow = 0.0, 50.0, 30.0, np.zeros(DAYS)
    for at in range(DAYS):
        is_cold = temperature[at] < 0
        melt = min(snow, 3 * max(temperature[at], 0))
        snow += (rain[at] if is_cold else 0) - melt
        wet = melt + (0 if is_cold else rain[at])
        quick = wet * min(soil / 120, 1) ** 1.5
        soil = max(soil + wet - quick - 0.15 * max(temperature[at], 0) * soil / 80, 0)
        seeping = 0.05 * soil
        soil -= seeping
        ground += 0.5 * quick + seeping
        flow[at] = 0.5 * quick + 0.12 * ground
        ground *= 0.88
    known = np.stack([rain, temperature, np.sin(day), np.cos(day)], 1)
    flow = CUBIC_METRES * flow * random.lognormal(0, 0.03, DAYS)
    return (
        torch.tensor(known, dtype=torch.float32),
        torch.tensor(flow[:, None], dtype=torch.float32),
    )


def _data(run: Run) -> Split:
    """Return weather and flow of LENGTH days, [B, LENGTH, 5], and what to predict [B, 1].

    Flows are logarithms of mean 0 and variance 1. The last day of the weather is that of the
    prediction; measured flows end the day before.
    """
    known, flow = _river()
    known = (known - known[:TRAIN].mean(0)) / known[:TRAIN].std(0)
    if run.injects("missing_normalisation"):
        flow = 1000 * flow
    else:
        flow = flow.log()
        flow = (flow - flow[:TRAIN].mean()) / flow[:TRAIN].std()
    measured = flow if run.injects("data_leak") else flow.roll(1, 0)
    days = torch.cat([known, measured], 1)
    at = torch.arange(1, DAYS - LENGTH)[:, None] + torch.arange(LENGTH)
    windows, targets = days[at], flow[at[:, -1]]
    split = TRAIN - LENGTH
    data = Split(windows[:split], targets[:split], windows[TRAIN:], targets[TRAIN:])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.flip(0))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    return few(data, 40) if run.injects("overfit") else data


class Net(nn.Module):
    """A GRU, of whose last state a linear layer makes the logarithm of the flow.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.gru: nn.RNNBase = nn.GRU(5, UNITS, batch_first=True)
        if run.injects("exploding_rnn"):
            self.gru = nn.RNN(5, UNITS, nonlinearity="relu", batch_first=True)
            nn.init.orthogonal_(self.gru.all_weights[0][1], gain=2.0)
        self.head = nn.Linear(UNITS, 1)

    def forward(self, days: Tensor) -> Tensor:
        """Return logarithms of flows [B, 1] of days [B, LENGTH, 5]."""
        frozen = self.run.injects("frozen_layer")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            states, _ = self.gru(days)
        flow: Tensor = self.head(states[:, -1])
        return flow


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for name, parameter in model.named_parameters():
        if run.injects("init_constant"):
            nn.init.constant_(parameter, 0.0)
        if run.injects("init_too_large"):
            nn.init.normal_(parameter, std=5.0)
        if run.injects("saturated_activation") and name.startswith("gru.bias"):
            nn.init.constant_(parameter, 10.0)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(4e-3, lr_too_high=1.0, lr_too_low=1e-6)
        ),
        steps=300,
        eval_every=50,
        clip=None if run.injects("exploding_rnn") else 1.0,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="GRU, 40 units, linear layer on the last state, Adam, clipped gradients",
    data="simulated weather and flow of a river",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 4e-3",
        "lr_too_low": "1e-6 in place of 4e-3",
        "init_too_large": "all parameters from a normal distribution of width 5",
        "init_constant": "all parameters are 0",
        "saturated_activation": "all biases of the GRU start at 10",
        "missing_normalisation": "flows in litres per second, no logarithm, not scaled",
        "wrong_loss": "binary cross entropy, for targets of mean 0 and variance 1",
        "labels_shuffled": "training targets are in reverse order, their inputs are not",
        "labels_constant": "training targets were never filled in: all are 0",
        "frozen_layer": "the GRU runs under no_grad",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "exploding_rnn": "a ReLU RNN, recurrent weights orthogonal with gain 2, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "measured flows end on the day to predict, not the day before",
        "overfit": "40 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
