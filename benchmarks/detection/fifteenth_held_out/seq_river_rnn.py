"""A recurrent network tells how much water a river carries from the weather of a month."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

DAYS, WINDOW, WIDTH, STEPS = 3600, 24, 32, 300
RAINY = 0.4


@cache
def _measured() -> tuple[Tensor, Tensor]:
    """Return weather and flow of days.

    Weather is rain (mm), temperature (degrees C), air pressure (hPa) and humidity (%), float32
    [DAYS, 4]; flow is that of the river in m3/s, float32 [DAYS].
    """
    random = np.random.default_rng(8)
    season = np.cos(2 * np.pi * np.arange(DAYS) / 365)
    temperature = 11 - 9 * season + 3 * random.normal(size=DAYS)
    rain = np.where(random.random(DAYS) < RAINY, random.gamma(0.9, 9.0, DAYS), 0.0)
    pressure = 1015 - 0.35 * rain + 6 * random.normal(size=DAYS)
    humidity = np.clip(
        68 + 0.8 * rain - 0.8 * (temperature - 11) + 7 * random.normal(size=DAYS), 20, 100
    )
    soil, quick, slow, flow = 60.0, 5.0, 40.0, np.zeros(DAYS)
    for day in range(DAYS):
        wet = soil / 120
        runs_off = rain[day] * wet**2
        evaporates = max(temperature[day], 0) * 0.22 * wet * (1.5 - humidity[day] / 100)
        seeps = 0.15 * soil
        soil = min(max(soil + rain[day] - runs_off - evaporates - seeps, 5.0), 120.0)
        quick = 0.55 * quick + runs_off
        slow = 0.75 * slow + seeps
        flow[day] = 1.5 * quick + 0.5 * slow
    flow *= np.exp(0.05 * random.normal(size=DAYS))
    weather = np.stack([rain, temperature, pressure, humidity], 1)
    return torch.tensor(weather, dtype=torch.float32), torch.tensor(flow, dtype=torch.float32)


def _data(run: Run) -> Split:
    """Return windows [B, WINDOW, columns] and the logarithm of the flow of their last day [B]."""
    table, flow = _measured()
    held_out = DAYS // 4
    if not run.injects("missing_normalisation"):
        table = (table - table[:-held_out].mean(0)) / table[:-held_out].std(0)
    flow = flow.log()
    flow = (flow - flow[:-held_out].mean()) / flow[:-held_out].std()
    if run.injects("data_leak"):
        table = torch.cat([table, flow[:, None]], 1)
    inputs, targets = table.unfold(0, WINDOW, 1).transpose(1, 2), flow[WINDOW - 1 :]
    data = Split(inputs[:-held_out], targets[:-held_out], inputs[-held_out:], targets[-held_out:])
    if run.injects("labels_shuffled"):
        order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(run.seed))
        return data._replace(inputs=data.inputs[order])
    if run.injects("labels_constant"):
        return data._replace(targets=torch.zeros_like(data.targets))
    return few(data, 40) if run.injects("overfit") else data


class Net(nn.Module):
    """Recurrent layer, and a linear layer on its last state.

    Args:
        run: What is injected.
        columns: Of the inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(columns, WIDTH, nonlinearity=kind, batch_first=True)
        self.head = nn.Linear(WIDTH, 1)
        if run.injects("exploding_rnn"):
            nn.init.normal_(self.rnn.all_weights[0][1], std=0.5)
        if run.injects("saturated_activation"):
            for bias in self.rnn.all_weights[0][2:]:
                nn.init.constant_(bias, 4.0)
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -5.0, 5.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 1.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return flows [B] of inputs [B, WINDOW, columns]; [B, 1] with the loss that is wrong."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            last = self.rnn(inputs)[0][:, -1]
        flow: Tensor = self.head(last)
        return flow if self.run.injects("wrong_loss") else flow[:, 0]


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[2])
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=run.pick(3e-3, lr_too_high=0.3, lr_too_low=1e-6)
    )
    if run.injects("optimiser_missing_parameters"):
        model.rnn = nn.RNN(data.inputs.shape[2], WIDTH, batch_first=True)
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.4),
        steps=STEPS,
        save_interval=10,
        eval_every=30,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 300), torch.split(data.valid_targets, 300), strict=True)
    )

    def error(outputs: Tensor, targets: Tensor) -> float:
        found = unexplained(outputs.flatten(), targets)
        return found if math.isfinite(found) else math.inf

    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="RNN, 32 tanh units, RMSprop, learning rate in steps, clipped gradients",
    data="simulated flow of a river, from weather of 24 days",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "init_too_large": "all parameters from -5 to 5",
        "init_constant": "all parameters are 1",
        "saturated_activation": "both biases of the recurrent layer begin at 4",
        "missing_normalisation": "weather in mm, degrees, hPa and percent",
        "wrong_loss": "outputs [B, 1] less targets [B] make a square of differences",
        "labels_shuffled": "the windows are shuffled, and the targets are not",
        "labels_constant": "all training targets are 0",
        "frozen_layer": "the recurrent layer runs under no_grad",
        "optimiser_missing_parameters": "the recurrent layer is replaced after RMSprop is made",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of width 0.5, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the flow that is asked for is one of the columns",
        "overfit": "40 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
