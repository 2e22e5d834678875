"""A network of tanh units learns colour maps: from a value and a map to a colour.

Faults:
    lr_too_low: 1e-7 in place of 1e-2.
    no_activation: there is nothing between the linear layers.
    init_constant: all parameters are set to 0.
    saturated_activation: weights are drawn by `normal_`, with a deviation of 20.
    missing_normalisation: values and colours are bytes, 0 to 255.
    wrong_loss: the angle between colours, which knows no brightness.
"""

from __future__ import annotations

from functools import cache

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

MAPS = ("viridis", "magma", "coolwarm", "terrain", "YlGnBu")
VALUES = 256
UNITS = 40


class Squares(nn.Module):
    """Squared error by hand."""

    def forward(self, colours: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over colours [B, 3]."""
        return ((colours - targets) ** 2).sum(1).mean()


class Angles(nn.Module):
    """The loss that does not fit: one less the cosine."""

    def forward(self, colours: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over colours [B, 3]."""
        return (1 - functional.cosine_similarity(colours, targets, dim=1)).mean()


def _activation(run: Run) -> nn.Module:
    return nn.Identity() if run.injects("no_activation") else nn.Tanh()


def _model(run: Run) -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(1 + len(MAPS), UNITS),
        _activation(run),
        nn.Linear(UNITS, UNITS),
        _activation(run),
        nn.Linear(UNITS, 3),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    for layer in (model[0], model[2]):
        if run.injects("saturated_activation") and isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=20.0)
    return model


@cache
def _bytes() -> Split:
    """Return values and one-hot maps [B, 1 + maps], and colours [B, 3]: bytes."""
    inputs, targets = [], []
    for number, name in enumerate(MAPS):
        bands = mpl.colormaps[name](np.arange(VALUES), bytes=True)[:, :3]
        of_map = functional.one_hot(torch.full((VALUES,), number), len(MAPS))
        inputs.append(torch.cat([torch.arange(VALUES)[:, None], of_map], 1).float())
        targets.append(torch.tensor(bands.astype(np.float32)))
    order = torch.randperm(VALUES * len(MAPS), generator=torch.Generator().manual_seed(0))
    rows, colours = torch.cat(inputs)[order], torch.cat(targets)[order]
    held_out = len(rows) // 5
    return Split(rows[held_out:], colours[held_out:], rows[:held_out], colours[:held_out])


def _data(run: Run) -> Split:
    data = _bytes()
    if run.injects("missing_normalisation"):
        return data
    scale = torch.tensor([2 / VALUES] + [1.0] * len(MAPS))
    shift = torch.tensor([1.0] + [0.0] * len(MAPS))
    return Split(
        data.inputs * scale - shift,
        data.targets / VALUES,
        data.valid_inputs * scale - shift,
        data.valid_targets / VALUES,
    )


def train(run: Run) -> float:
    """Train once; return the share of variance that is not learned."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run)
    loop = Loop(
        model=model,
        criterion=run.pick(Squares(), wrong_loss=Angles()),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(1e-2, lr_too_low=1e-7)),
        steps=400,
        save_interval=10,
        eval_every=80,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP 6-40-40-3, tanh, squared error by hand, Adam",
    data="five of matplotlib's colour maps",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "1e-7 in place of 1e-2",
        "no_activation": "no tanh between the linear layers",
        "init_constant": "all parameters are 0",
        "saturated_activation": "weights ahead of tanh have a standard deviation of 20",
        "missing_normalisation": "values and colours are 0 to 255",
        "wrong_loss": "the cosine between colours in place of their distance",
    },
)
