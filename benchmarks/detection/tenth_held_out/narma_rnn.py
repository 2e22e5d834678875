"""A recurrent cell written by hand models a system with memory, the NARMA benchmark."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

LENGTH = 40
WARM_UP = 10
ORDER = 5


class Cell(nn.Module):
    """One step of a recurrent layer with leaky ReLU.

    Args:
        columns: How many inputs there are at a step.
        units: How many units it has.
        growth: How many times as large states would get at each step without inputs.
    """

    def __init__(self, columns: int, units: int, growth: float) -> None:
        super().__init__()
        self.of_input = nn.Linear(columns, units)
        self.of_state = nn.Linear(units, units, bias=False)
        self.act = nn.LeakyReLU(0.1)
        nn.init.orthogonal_(self.of_state.weight, gain=growth)
        nn.init.constant_(self.of_input.bias, 0.5)

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return the next state [B, units] of inputs [B, columns] and the state before."""
        after: Tensor = self.act(self.of_input(inputs) + self.of_state(state))
        return after


class Model(nn.Module):
    """The cell over all steps, and a linear layer on its states.

    Args:
        run: What is injected.
        columns: How many inputs there are at a step.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.cell = Cell(columns, 32, run.pick(0.8, exploding_rnn=2.5))
        self.hidden, self.act = nn.Linear(32, 16), nn.GELU()
        self.out = nn.Linear(16, 1)
        if run.injects("init_constant"):
            filled_([self.hidden, self.out], 0.0)

    def forward(self, series: Tensor) -> Tensor:
        """Return outputs [B, length - WARM_UP] of series [B, length, columns]."""
        state = series.new_zeros(len(series), 32)
        states = []
        for inputs in series.unbind(1):
            state = self.cell(inputs, state)
            states.append(state)
        features = torch.stack(states[WARM_UP:], 1)
        if self.run.injects("frozen_layer"):
            features = features.detach()
        found: Tensor = self.out(self.act(self.hidden(features)))
        return found[:, :, 0]


def _series(count: int) -> tuple[Tensor, Tensor]:
    """Return what drives the system and what it does, [count, length] each."""
    random = torch.Generator().manual_seed(6)
    drive = 0.5 * torch.rand(count, LENGTH + 30, generator=random)
    does = [torch.zeros(count)] * ORDER
    for step in range(ORDER, LENGTH + 30):
        before = torch.stack(does[-ORDER:], 1)
        grown = 0.3 * before[:, -1] + 0.05 * before[:, -1] * before.sum(1)
        does.append(grown + 1.5 * drive[:, step - ORDER] * drive[:, step - 1] + 0.1)
    return drive[:, 30:], torch.stack(does, 1)[:, 30:]


def _data(run: Run) -> Split:
    drive, does = _series(1000)
    if not run.injects("missing_normalisation"):
        drive = (drive - drive.mean()) / drive.std()
        does = (does - does.mean()) / does.std()
    else:
        drive, does = 1000.0 * drive, 1000.0 * does
    series = drive[:, :, None]
    if run.injects("data_leak"):
        series = torch.stack([drive, does], 2)
    targets = does[:, WARM_UP:]
    data = Split(series[200:], targets[200:], series[:200], targets[:200])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 2)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, -1.0))
    if run.injects("overfit"):
        data = few(data, 2)
    return data


def _error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).square().mean() / truth.var(correction=0))


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Model(run, data.inputs.shape[2])
    given = model.parameters()
    if run.injects("optimiser_missing_parameters"):
        given = model.cell.of_input.parameters()
    optimizer = torch.optim.Adam(given, lr=run.pick(3e-3, lr_too_high=1.0))
    is_clipped = not run.injects("exploding_rnn", "lr_too_high")
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200),
        steps=200,
        save_interval=5,
        eval_every=20,
        clip=1.0 if is_clipped else None,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _error)


PROGRAM = Program(
    model="hand-written recurrent cell of 32 leaky ReLUs, Adam, clipped gradients, cosine schedule",
    data="simulated NARMA systems of order 5",
    measure="share of the outputs' variance that is not explained",
    train=train,
    faults={
        "exploding_rnn": "recurrent weights start orthogonal times 2.5 in place of 0.8, gradients "
        "are not clipped: states grow over 40 steps",
        "data_leak": "a second input is the output of the same step",
        "labels_shuffled": "outputs belong to other series",
        "labels_constant": "every output in the training series is -1: a sensor at its end",
        "missing_normalisation": "inputs and outputs in thousandths, up to 500, as they are",
        "frozen_layer": "states are detached ahead of the hidden layer: the cell never learns",
        "optimiser_missing_parameters": "the optimiser was given the cell's input weights only",
        "init_constant": "both layers on top of the states start at zero: no gradient gets past",
        "overfit": "two series for training",
        "lr_too_high": "1.0 in place of 3e-3, gradients are not clipped",
    },
)
