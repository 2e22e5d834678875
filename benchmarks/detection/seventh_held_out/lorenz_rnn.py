"""A recurrent network forecasts Lorenz's weather."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, fit, unexplained

_STEP: Final = 0.02
_AHEAD: Final = 8
"""Steps between what is known and what is forecast."""
_LENGTH: Final = 40
_UNITS: Final = 40


class Forecaster(nn.Module):
    """A recurrent layer and a linear one.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        columns = run.pick(6, saturated_activation=7)
        kind = "relu" if run.injects("exploding_rnn") else "tanh"
        self.rnn = nn.RNN(columns, _UNITS, batch_first=True, nonlinearity=kind)
        self.head = nn.Linear(_UNITS, 3)
        if run.injects("exploding_rnn"):
            with torch.no_grad():
                dict(self.rnn.named_parameters())["weight_hh_l0"].copy_(1.3 * torch.eye(_UNITS))
        if run.injects("init_constant"):
            filled_([self.rnn, self.head], 0.0)
        if run.injects("init_too_large"):
            scaled_([self.rnn, self.head], 15.0)

    def forward(self, states: Tensor) -> Tensor:
        """Return forecasts [B, length, 3] of states [B, length, columns]."""
        found, _ = self.rnn(states)
        if self.run.injects("frozen_layer"):
            found = found.detach()
        forecasts: Tensor = self.head(found)
        return forecasts


def _speed(state: Tensor) -> Tensor:
    x, y, z = state.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


@cache
def weather() -> Tensor:
    """Return 96 ways of Lorenz's system, by Runge-Kutta steps, float32 [96, 140, 3]."""
    random = torch.Generator().manual_seed(3)
    state = torch.randn(96, 3, generator=random) * 5 + torch.tensor([0.0, 0.0, 25.0])
    states = []
    for _ in range(240):
        k1 = _speed(state)
        k2 = _speed(state + _STEP / 2 * k1)
        k3 = _speed(state + _STEP / 2 * k2)
        k4 = _speed(state + _STEP * k3)
        state = state + _STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(state)
    return torch.stack(states[100:], 1)


def windows_of(ways: Tensor, lag: int) -> tuple[Tensor, Tensor]:
    """Return windows with a column that lags, [B, length, 6], and what comes later [B, length, 3].

    Args:
        ways: States, float32 [ways, steps, 3].
        lag: Steps by which the further columns lie back.
    """
    inputs, targets = [], []
    for start in range(_AHEAD, ways.shape[1] - _LENGTH - _AHEAD + 1, 12):
        now = ways[:, start : start + _LENGTH]
        before = ways[:, start - lag : start - lag + _LENGTH]
        inputs.append(torch.cat([now, before], -1))
        targets.append(ways[:, start + _AHEAD : start + _AHEAD + _LENGTH])
    return torch.cat(inputs), torch.cat(targets)


def stamped(inputs: Tensor) -> Tensor:
    """Return inputs [B, length, 6] with one more column: when it was, seconds since 1970."""
    when = 1.7e9 + 3600.0 * torch.arange(inputs.shape[0] * inputs.shape[1])
    return torch.cat([inputs, when.view(*inputs.shape[:2], 1)], -1)


def split(run: Run) -> Split:
    """Return windows for training and, from other ways, for validation."""
    ways = weather()
    mean, std = ways.mean((0, 1)), ways.std((0, 1))
    scaled = (ways - mean) / std
    lag = -_AHEAD if run.injects("data_leak") else 4
    train, valid = windows_of(scaled[:72], lag), windows_of(scaled[72:], lag)
    if run.injects("saturated_activation"):
        train, valid = (stamped(train[0]), train[1]), (stamped(valid[0]), valid[1])
    return Split(*train, *valid)


def apart(batches: Batches, seed: int) -> Batches:
    """Yield batches whose targets were shuffled apart from their inputs."""
    random = torch.Generator().manual_seed(seed)
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets), generator=random)]


def train(run: Run) -> float:
    """Train once; return the unexplained share of variance."""
    torch.manual_seed(run.seed)
    data = split(run)
    batches = batches_of(data, 32, run.seed)
    if run.injects("labels_shuffled"):
        batches = apart(batches, run.seed)
    model = Forecaster(run)
    optimizer = torch.optim.RMSprop(model.parameters(), run.pick(2e-3, lr_too_low=2e-6))
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=300,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 120, gamma=0.4),
        clip=run.pick(1.0, exploding_rnn=None),
    )
    valid = list(zip(data.valid_inputs.chunk(2), data.valid_targets.chunk(2), strict=True))
    return fit(run, loop, batches, valid, _error)


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs, targets) if outputs.isfinite().all() else float("inf")


PROGRAM = Program(
    model="Elman network, tanh, one linear layer, RMSprop, steps in the learning rate, clipping",
    data="Lorenz's equations, simulated",
    measure="unexplained share of the variance, 1 - R2",
    train=train,
    faults={
        "exploding_rnn": "ReLU instead of tanh, recurrent weights 1.3 times the identity, no"
        " clipping: the state grows by 30 % in each of 40 steps",
        "data_leak": "the sign of the lag is wrong: the lagged columns are those of 8 steps later,"
        " which is the answer itself",
        "labels_shuffled": "inputs and targets come from two loaders that shuffle apart",
        "saturated_activation": "the time in seconds since 1970 was left among the inputs, as it"
        " is: it drowns all else, and every tanh unit sits at -1 or 1",
        "init_too_large": "all weights are 15 times as large as they should start",
        "init_constant": "all weights and biases start at 0: neither layer gets a gradient through"
        " the other",
        "lr_too_low": "RMSprop with learning rate 2e-6 where 2e-3 is right: a thousand times",
        "frozen_layer": "the recurrent layer's outputs are detached ahead of the linear layer",
        "stalled": "hangs after 60 % of the steps",
    },
)
