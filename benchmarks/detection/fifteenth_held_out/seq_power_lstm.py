"""An LSTM forecasts how much power a town takes in the next hour."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

HOURS, WINDOW, WIDTH, STEPS = 3600, 24, 32, 240
SATURDAY = 5


@cache
def _measured() -> Tensor:
    """Return load (MW), temperature (degrees C), hour and weekend, float32 [HOURS, 5].

    The hour is a point on a circle.
    """
    random = np.random.default_rng(5)
    at = np.arange(HOURS)
    hour, weekend = at % 24, (at // 24) % 7 >= SATURDAY
    weather, grid = np.zeros(HOURS), np.zeros(HOURS)
    for t in range(1, HOURS):
        weather[t] = 0.98 * weather[t - 1] + 0.6 * random.normal()
        grid[t] = 0.8 * grid[t - 1] + 9 * random.normal()
    temperature = 11 + 4 * np.sin(2 * np.pi * (hour - 9) / 24) + weather
    morning = 130 * np.exp(-((hour - 8.5) ** 2) / 6) * np.where(weekend, 0.4, 1)
    evening = 170 * np.exp(-((hour - 19) ** 2) / 9)
    heating = 9 * np.maximum(16 - temperature, 0)
    load = 620 - 60 * weekend + morning + evening + heating + grid + 5 * random.normal(size=HOURS)
    angle = 2 * np.pi * hour / 24
    columns = (load, temperature, np.sin(angle), np.cos(angle), weekend)
    return torch.tensor(np.stack(columns, 1), dtype=torch.float32)


def _data(run: Run) -> Split:
    table = _measured()
    held_out = HOURS // 4
    if not run.injects("missing_normalisation"):
        known = table[:-held_out]
        table = (table - known.mean(0)) / known.std(0)
    inputs = table.unfold(0, WINDOW, 1).transpose(1, 2)[:-1]
    first = WINDOW - 1 if run.injects("data_leak") else WINDOW
    targets = table[first : first + len(inputs), :1]
    data = Split(inputs[:-held_out], targets[:-held_out], inputs[-held_out:], targets[-held_out:])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 48) if run.injects("overfit") else data


class ReluLSTM(nn.Module):
    """An LSTM whose candidates and outputs go through ReLU in place of tanh.

    Args:
        lstm: Whose weights it has.
    """

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.of_inputs = nn.Linear(5, 4 * WIDTH)
        self.of_state = nn.Linear(WIDTH, 4 * WIDTH)
        self.of_inputs.load_state_dict({"weight": lstm.weight_ih_l0, "bias": lstm.bias_ih_l0})
        self.of_state.load_state_dict({"weight": lstm.weight_hh_l0, "bias": lstm.bias_hh_l0})

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:
        """Return states [B, WINDOW, WIDTH] of inputs [B, WINDOW, 5]."""
        h = c = inputs.new_zeros(len(inputs), WIDTH)
        states = []
        for x in self.of_inputs(inputs).unbind(1):
            i, f, g, o = (x + self.of_state(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.relu()
            h = o.sigmoid() * c.relu()
            states.append(h)
        return torch.stack(states, 1), None


class Net(nn.Module):
    """LSTM, and two layers on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        lstm = nn.LSTM(5, WIDTH, batch_first=True)
        _initialise(run, lstm)
        self.rnn = ReluLSTM(lstm) if run.injects("exploding_rnn") else lstm
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)
        if run.injects("init_constant"):
            _initialise(run, self)
        if run.injects("dead_relu"):
            nn.init.constant_(self.hidden.bias, -5.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return loads of the next hour [B, 1], for inputs [B, WINDOW, 5]."""
        last = self.rnn(inputs)[0][:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        forecast: Tensor = self.head(self.hidden(last).relu())
        return forecast


def _initialise(run: Run, module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if run.injects("init_constant"):
            nn.init.zeros_(parameter)
        elif run.injects("exploding_rnn") and name == "weight_hh_l0":
            nn.init.normal_(parameter, std=1.0)
    if run.injects("saturated_activation"):
        scaled_([module], 40.0)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=3.0)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(), lr=run.pick(4e-3, lr_too_high=0.5, lr_too_low=1e-6)
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        save_interval=8,
        eval_every=30,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 300), torch.split(data.valid_targets, 300), strict=True)
    )

    def error(outputs: Tensor, targets: Tensor) -> float:
        found = unexplained(outputs, targets)
        return found if math.isfinite(found) else math.inf

    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="LSTM, 32 units, two layers on the last state, Adam, cosine decay, clipped gradients",
    data="simulated hourly load of a town, the last 24 hours",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 4e-3",
        "lr_too_low": "1e-6 in place of 4e-3",
        "init_too_large": "all parameters from a normal distribution of width 3",
        "init_constant": "all parameters are 0",
        "dead_relu": "the hidden layer's biases begin at -5",
        "saturated_activation": "weights of the LSTM are 40 times as large",
        "missing_normalisation": "megawatts and degrees as they were measured",
        "wrong_loss": "cross entropy over the one output, which is always 0",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are that of the first row",
        "frozen_layer": "the state of the LSTM is detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of width 1, no clipping",
        "data_leak": "the target is the last hour of the window",
        "overfit": "48 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
