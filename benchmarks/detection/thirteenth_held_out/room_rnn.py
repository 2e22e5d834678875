"""A plain recurrent network forecasts the temperature of a room from its last two days."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

HOURS = 3000
WINDOW = 36
AHEAD = 6
UNITS = 32


def simulated() -> np.ndarray:
    """Return a year's hours, float64 [HOURS, 4]: room, outside (degrees C), sun, heating (W)."""
    random = np.random.default_rng(13)
    room, drift = 20.0, 0.0
    rows = []
    for hour in range(HOURS):
        day = 2 * math.pi * hour / 24
        drift = 0.98 * drift + random.normal(0.0, 0.6)
        outside = 6.0 - 5.0 * math.cos(day - 0.7) + drift
        sun = max(0.0, -math.cos(day)) * 600.0 * random.uniform(0.5, 1.0)
        wanted = 21.0 if 6 <= hour % 24 < 22 else 17.0  # noqa: PLR2004 - the day's hours
        heating = min(max(900.0 * (wanted - room) + 600.0, 0.0), 3500.0)
        room += 0.09 * (outside - room) + 0.0017 * sun + 0.0006 * heating
        room += random.normal(0.0, 0.05)
        rows.append((room, outside, sun, heating))
    return np.array(rows)


def series(run: Run) -> Split:
    """Return windows, float32 [B, WINDOW, 4], and temperatures AHEAD hours later, [B, 1]."""
    rows = torch.tensor(simulated(), dtype=torch.float32)
    held_out = HOURS * 3 // 4
    if not run.injects("missing_normalisation"):
        rows = (rows - rows[:held_out].mean(0)) / rows[:held_out].std(0)
    if run.injects("data_leak"):
        rows = torch.cat([rows, rows.roll(-AHEAD, 0)[:, :1]], 1)
    windows = rows.unfold(0, WINDOW, 1).transpose(1, 2)[:-AHEAD].contiguous()
    targets = rows[WINDOW + AHEAD - 1 :, :1]
    cut = held_out - WINDOW
    return Split(windows[:cut], targets[:cut], windows[cut + WINDOW :], targets[cut + WINDOW :])


class Forecaster(nn.Module):
    """Recurrent layer, then two linear layers on its last state.

    Args:
        run: What is injected.
        columns: Number of series.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(columns, UNITS, nonlinearity=kind, batch_first=True)
        self.fc1 = nn.Linear(UNITS, 32)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(32, 1)
        if run.injects("exploding_rnn"):
            nn.init.normal_(self.rnn.get_parameter("weight_hh_l0"), std=0.35)
        if run.injects("saturated_activation"):
            for name in ("weight_ih_l0", "weight_hh_l0"):
                nn.init.normal_(self.rnn.get_parameter(name), std=2.0)
        if run.injects("dead_relu"):
            shifted_([self.fc1], -10.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, windows: Tensor) -> Tensor:
        """Return forecasts [B, 1] of windows [B, WINDOW, columns]."""
        states, _ = self.rnn(windows)
        last = states[:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        forecasts: Tensor = self.fc2(self.relu(self.fc1(last)))
        return forecasts


class FlatMSE(nn.Module):
    """The squared error of targets that lost their second dimension."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus targets [B], which is [B, B]."""
        return (outputs - targets.squeeze(1)).square().mean()


def train(run: Run) -> float:
    """Train once; return the share of unexplained variance."""
    torch.manual_seed(run.seed)
    data = series(run)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    model = Forecaster(run, data.inputs.shape[2])
    trained = model.fc2 if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        trained.parameters(), lr=run.pick(3e-3, lr_too_high=0.3, lr_too_low=3e-6)
    )
    loop = Loop(
        model=model,
        criterion=FlatMSE() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100, gamma=0.3),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="RNN, 32 tanh units, linear layers with ReLU, Adam, steps of the rate, clipped gradients",
    data="a simulated room: temperatures, sun and heating by the hour",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "ReLU in place of tanh, recurrent weights N(0, 0.35), no clipping",
        "saturated_activation": "weights of the recurrent layer N(0, 2): its units are at -1 or 1",
        "dead_relu": "biases ahead of the ReLUs are 10 lower",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "lr_too_high": "0.3 in place of 3e-3",
        "lr_too_low": "3e-6 in place of 3e-3",
        "missing_normalisation": "degrees and watts as they are, for inputs and targets",
        "wrong_loss": "targets [B] against outputs [B, 1]: every output against every target",
        "labels_shuffled": "training targets are permuted",
        "frozen_layer": "the last state is detached ahead of the linear layers",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "data_leak": "a column of the temperature AHEAD hours later",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
