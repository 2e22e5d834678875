"""A recurrent network follows an oscillator with a hardening spring that is shaken."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LENGTH, WIDTH = 48, 24


def shaken(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return forces and displacements of an oscillator from rest, float32 [count, 48, 1]."""
    random = np.random.default_rng(seed)
    force = np.repeat(1.2 * random.normal(size=(count, LENGTH // 4)), 4, axis=1)
    place, speed = np.zeros(count), np.zeros(count)
    places = []
    for step in range(LENGTH):
        for _ in range(5):
            speed += 0.06 * (force[:, step] - 0.35 * speed - place - 0.6 * place**3)
            place += 0.06 * speed
        places.append(place.copy())
    measured = np.stack(places, 1) + 0.02 * random.normal(size=force.shape)
    return (
        torch.tensor(force[..., None], dtype=torch.float32),
        torch.tensor(measured[..., None], dtype=torch.float32),
    )


class Follower(nn.Module):
    """A recurrent layer and a linear one.

    Args:
        run: What is injected.
        columns: Columns of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.rnn: nn.Module = nn.GRU(columns, WIDTH, batch_first=True)
        if run.injects("exploding_rnn"):
            self.rnn = nn.RNN(columns, WIDTH, nonlinearity="relu", batch_first=True)
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("weight_hh"):
                    nn.init.orthogonal_(parameter, gain=2.5)
        if run.injects("saturated_activation"):
            self.rnn = nn.RNN(columns, WIDTH, batch_first=True)
            for parameter in self.rnn.parameters():
                nn.init.normal_(parameter, std=6.0)
        self.out = nn.Linear(WIDTH, 1)
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=4.0)

    def forward(self, forces: Tensor) -> Tensor:
        """Return displacements [B, 48, 1] of forces [B, 48, C]."""
        states, _ = self.rnn(forces)
        if self.run.injects("frozen_layer"):
            states = torch.from_numpy(states.detach().numpy())
        places: Tensor = self.out(states)
        return places


def _data(run: Run) -> Split:
    data = Split(*shaken(1200, 0), *shaken(200, 1))
    unit = data.targets.std()
    data = data._replace(targets=data.targets / unit, valid_targets=data.valid_targets / unit)
    if run.injects("missing_normalisation"):
        data = data._replace(inputs=data.inputs * 4000, valid_inputs=data.valid_inputs * 4000)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, 0.37))
    if run.injects("data_leak"):
        data = data._replace(
            inputs=torch.cat([data.inputs, data.targets], 2),
            valid_inputs=torch.cat([data.valid_inputs, data.valid_targets], 2),
        )
    return data


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Follower(run, data.inputs.shape[2])
    given = model.out if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.RMSprop(given.parameters(), lr=run.pick(3e-3, lr_too_low=2e-6))
    steps = 240
    loop = Loop(
        model=model,
        criterion=nn.SmoothL1Loss(),
        optimizer=optimizer,
        steps=steps,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        clip=run.pick(1.0, exploding_rnn=None, init_too_large=None),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="GRU, linear layer, SmoothL1Loss, RMSprop, clipped, cosine schedule",
    data="Duffing's oscillator with random forces, simulated",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "ReLU units, orthogonal recurrent weights of gain 2.5, no clipping",
        "saturated_activation": "tanh units, all weights drawn with deviation 6",
        "missing_normalisation": "forces are in units of a 4,000th",
        "labels_shuffled": "displacements are those of other experiments",
        "labels_constant": "the sensor was stuck: every displacement is 0.37",
        "data_leak": "the displacement to be found is a second column",
        "frozen_layer": "states go through NumPy and back, gradients do not",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "lr_too_low": "learning rate 0.000002 for 0.003",
    },
)
