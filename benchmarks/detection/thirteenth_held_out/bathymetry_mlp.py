"""A multilayer perceptron of tanh units draws a map: the mean height around a place."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


def places(run: Run) -> Split:
    """Return longitudes and latitudes, float32 [B, 2], and mean heights from 0 to 1, [B, 1]."""
    with np.load(Path(mpl.get_data_path()) / "sample_data" / "topobathy.npz") as file:
        heights = torch.tensor(file["topo"], dtype=torch.float32)
        axes = [torch.tensor(file[name], dtype=torch.float32) for name in ("longitude", "latitude")]
    inputs = torch.stack(torch.meshgrid(axes[1], axes[0], indexing="ij"), -1).flip(-1).flatten(0, 1)
    smooth = nn.functional.avg_pool2d(
        heights[None], 7, stride=1, padding=3, count_include_pad=False
    )
    targets = smooth.reshape(-1, 1)
    if not run.injects("missing_normalisation", "saturated_activation"):
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    if not run.injects("missing_normalisation"):
        targets = (targets - targets.min()) / (targets.max() - targets.min())
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order], targets[order]
    cut = len(inputs) // 5
    return Split(inputs[cut:], targets[cut:], inputs[:cut], targets[:cut])


class Mapper(nn.Module):
    """Four linear layers with tanh between them, and a sigmoid at the end.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        activation = nn.Identity if run.injects("no_activation") else nn.Tanh
        self.layers = nn.Sequential()
        for inputs in (2, 64, 64):
            self.layers.extend([nn.Linear(inputs, 64), activation()])
        self.out = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid())
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return heights [B, 1] of places [B, 2]."""
        features = self.layers(inputs)
        if self.run.injects("frozen_layer"):
            features = features.detach()
        heights: Tensor = self.out(features)
        return heights.sigmoid() if self.run.injects("double_activation") else heights


class FlatMSE(nn.Module):
    """The squared error of targets that lost their second dimension."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus targets [B], which is [B, B]."""
        return (outputs - targets.squeeze(1)).square().mean()


def train(run: Run) -> float:
    """Train once; return the share of unexplained variance."""
    torch.manual_seed(run.seed)
    data = places(run)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    model = Mapper(run)
    trained = model.out if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=FlatMSE() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.Adam(
            trained.parameters(), lr=run.pick(1e-2, lr_too_high=1.0, lr_too_low=1e-5)
        ),
        steps=400,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 128, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP, 3 hidden layers of tanh units, sigmoid at the end, Adam",
    data="mean heights of land and sea bed (matplotlib's topobathy)",
    measure="1 - R2",
    train=train,
    faults={
        "no_activation": "no tanh between the linear layers",
        "saturated_activation": "degrees of longitude and latitude as they are",
        "missing_normalisation": "degrees and metres as they are, for inputs and targets",
        "double_activation": "a second sigmoid behind that of the model",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "wrong_loss": "targets [B] against outputs [B, 1]: every output against every target",
        "lr_too_high": "1.0 in place of 1e-2",
        "lr_too_low": "1e-5 in place of 1e-2",
        "labels_shuffled": "training targets are permuted",
        "frozen_layer": "features are detached ahead of the last layer",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
