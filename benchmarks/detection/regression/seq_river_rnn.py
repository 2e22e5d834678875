"""A recurrent network predicts how much water a river carries from the weather of a month."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, grad_unless_frozen, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit

DAYS, WINDOW, WIDTH = 3600, 24, 32
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
    return with_fault(run, data, rows=40)


class Net(nn.Module):
    """Recurrent layer, and a linear layer on its last state."""

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
        filled_(run, "init_constant", [self], 1.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return flows [B] of inputs [B, WINDOW, columns]; [B, 1] with the loss that is wrong."""
        with grad_unless_frozen(self.run):
            last = self.rnn(inputs)[0][:, -1]
        flow: Tensor = self.head(last)
        return flow if self.run.injects("wrong_loss") else flow[:, 0]


def train(run: Run) -> float:
    data = _data(run)
    columns = data.inputs.shape[2]
    model = Net(run, columns)
    rate = run.pick(3e-3, lr_too_high=0.3, lr_too_low=1e-6)
    optimizer = torch.optim.RMSprop(model.parameters(), rate)
    if run.injects("optimiser_missing_parameters"):  # replaced after the optimizer was made
        model.rnn = nn.RNN(columns, WIDTH, batch_first=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.4)
    loop = Loop(
        model, nn.MSELoss(), optimizer, 300, scheduler, clip=1.0, save_interval=10, eval_every=30
    )
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(300))
