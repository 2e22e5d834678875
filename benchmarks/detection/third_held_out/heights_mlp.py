"""A multilayer perceptron learns the heights of a map from longitude and latitude."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


class Net(nn.Module):
    """Three hidden layers and one output.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        sizes = (2, 64, 64, 64)
        self.hidden = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))
        self.activation = run.pick(nn.ReLU(), no_activation=nn.Identity())
        self.out = nn.Linear(64, 1)
        for parameter in self.hidden.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter)
        if run.injects("init_too_large"):
            scaled_(self.hidden, 10.0)
        if run.injects("init_constant"):
            filled_([self], 0.1)
        if run.injects("dead_relu"):
            shifted_(self.hidden[1:], -20.0)

    def forward(self, places: Tensor) -> Tensor:
        """Return heights [B, 1] at places [B, 2]."""
        x = places
        for layer in self.hidden:
            x = self.activation(layer(x))
        heights: Tensor = self.out(x)
        return heights


@cache
def _map() -> tuple[Tensor, Tensor]:
    path = Path(mpl.get_data_path()) / "sample_data" / "topobathy.npz"
    with np.load(path) as file:
        latitudes, longitudes = np.meshgrid(file["latitude"], file["longitude"], indexing="ij")
        heights = file["topo"]
    # Four neighbours become one: their mean.
    grid = torch.tensor(np.stack([longitudes, latitudes, heights])).float()
    rows = functional.avg_pool2d(grid, 2).flatten(1).T
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    return rows[:, :2], rows[:, 2:]


def _data(run: Run) -> Split:
    places, heights = _map()
    if not run.injects("missing_normalisation"):
        places = (places - places[600:].mean(0)) / places[600:].std(0)
        heights = (heights - heights[600:].mean()) / heights[600:].std()
    return Split(places[600:], heights[600:], places[:600], heights[:600])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    steps = 400
    part = run.pick(model, optimiser_missing_parameters=model.out)
    optimizer = torch.optim.Adam(part.parameters(), lr=1e-2)
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        steps=steps,
        save_interval=8,
        eval_every=80,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 128, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP 2-64-64-64-1, ReLU, Adam, cosine schedule",
    data="heights of matplotlib's topobathy",
    measure="1 - R2",
    train=train,
    faults={
        "no_activation": "all ReLUs are missing",
        "init_too_large": "weights of the hidden layers are 10 times as large",
        "init_constant": "all parameters are 0.1",
        "dead_relu": "biases of two hidden layers are 20 lower",
        "missing_normalisation": "degrees and metres are not scaled",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
