"""An LSTM foretells the demand for electricity three hours ahead."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

HOURS = 2400
LENGTH = 24
AHEAD = 3
UNITS = 32


class Forecaster(nn.Module):
    """LSTM, and a linear layer on its last state.

    Args:
        columns: How many inputs there are each hour.
        run: What is injected.
    """

    def __init__(self, columns: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.lstm: nn.RNNBase = nn.LSTM(columns, UNITS, batch_first=True)
        if run.injects("exploding_rnn"):
            self.lstm = nn.RNN(columns, UNITS, nonlinearity="relu", batch_first=True)
            with torch.no_grad():
                self.lstm.all_weights[0][1].copy_(1.5 * torch.eye(UNITS))
        self.fc = nn.Linear(UNITS, 1)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 30.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return demands [B, 1] after hours [B, 24, columns]."""
        states, _ = self.lstm(x)
        last = states[:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        after: Tensor = self.fc(last)
        return after


def demand() -> tuple[Tensor, Tensor]:
    """Return demand, megawatts, and temperature, degrees Celsius, float32 [hours] each."""
    random = torch.Generator().manual_seed(8)
    hour = torch.arange(HOURS).float()
    weather, slow = [0.0], torch.randn(HOURS, generator=random)
    for push in slow[1:]:
        weather.append(0.97 * weather[-1] + 0.6 * float(push))
    warmth = 14 + torch.tensor(weather) + 5 * torch.sin(2 * math.pi * (hour - 9) / 24)
    day = torch.sin(2 * math.pi * (hour - 7) / 24) + 0.4 * torch.sin(4 * math.pi * (hour - 4) / 24)
    is_weekend = ((hour // 24) % 7 >= 5).float()  # noqa: PLR2004 - Saturday and Sunday
    mean = 31_000 + 5_000 * day - 3_500 * is_weekend + 450 * (16 - warmth).abs()
    return mean + 500 * torch.randn(HOURS, generator=random), warmth


def dataset(run: Run) -> Split:
    """Return a day [B, 24, columns] and the demand after it [B, 1]; the last hours are held out."""
    load, warmth = demand()
    hour = torch.arange(HOURS) * 2 * math.pi / 24
    known = load[: HOURS * 3 // 4]
    if not run.injects("missing_normalisation"):
        load = (load - known.mean()) / known.std()
        warmth = (warmth - 14) / 6
    is_weekend = ((torch.arange(HOURS) // 24) % 7 >= 5).float()  # noqa: PLR2004
    columns = [load, warmth, hour.sin(), hour.cos(), is_weekend]
    if run.injects("data_leak"):
        columns.append(load.roll(-AHEAD))
    series = torch.stack(columns, 1)
    starts = torch.arange(HOURS - LENGTH - AHEAD)
    days = series[starts[:, None] + torch.arange(LENGTH)]
    after = load[starts + LENGTH - 1 + AHEAD, None]
    if run.injects("wrong_loss"):
        after = after[:, 0]
    first = len(starts) * 3 // 4
    data = Split(days[:first], after[:first], days[first + LENGTH :], after[first + LENGTH :])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    return few(data, 40) if run.injects("overfit") else data


def error(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of variance that is not explained, of outputs [B, 1]."""
    return unexplained(outputs.flatten(), targets.flatten())


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Forecaster(data.inputs.shape[-1], run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.fc.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.Adam(
        parameters, lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-6, overfit=1e-2)
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=300,
        clip=None if run.injects("exploding_rnn", "overfit") else 1.0,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5),
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 191), torch.split(data.valid_targets, 191), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="LSTM, 32 units, Adam, StepLR, clipped gradients, MSELoss",
    data="hourly demand for electricity, simulated: day, week, weather",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "RNN with ReLU in place of the LSTM, recurrent weights 1.5 I, no clipping",
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "init_constant": "all weights and biases are zero",
        "init_too_large": "all weights are 30 times as large",
        "missing_normalisation": "demand stays in megawatts, as input and as target",
        "wrong_loss": "MSELoss of outputs [B, 1] and targets [B], which are broadcast",
        "labels_shuffled": "targets are shuffled apart from the days",
        "frozen_layer": "the last state is detached",
        "optimiser_missing_parameters": "only the linear layer's parameters are given to Adam",
        "data_leak": "a column is the demand three hours later, shifted to the wrong side",
        "overfit": "40 windows, which overlap, a larger learning rate",
        "stalled": "hangs after 60 % of the steps",
    },
)
