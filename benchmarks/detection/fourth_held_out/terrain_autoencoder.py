"""A convolutional autoencoder squeezes squares of a map's relief into sixteen numbers.

Faults:
    init_constant: an own function for starting weights sets them all to 0.
    dead_relu: the function that sets biases was meant for the last layer: -10 in every one.
    missing_normalisation: squares are metres above the sea.
    wrong_loss: binary cross entropy of logits, copied from an autoencoder of digits.
    frozen_layer: the encoder is called under no_grad.
    optimiser_missing_parameters: the optimiser has the encoder only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 16
CODE = 16


class Autoencoder(nn.Module):
    """Two convolutions, a linear layer, and the way back.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, CODE),
        )
        self.decoder = nn.Sequential(
            nn.Linear(CODE, 16 * 4 * 4),
            nn.ReLU(),
            nn.Unflatten(1, (16, 4, 4)),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )
        if run.injects("init_constant"):
            filled_([self], 0.0)
        for parameter in self.parameters():
            if run.injects("dead_relu") and parameter.dim() == 1:
                nn.init.constant_(parameter, -10.0)

    def forward(self, squares: Tensor) -> Tensor:
        """Return squares [B, 1, SIDE, SIDE] again."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            code = self.encoder(squares)
        again: Tensor = self.decoder(code)
        return again


@cache
def _squares() -> tuple[Tensor, Tensor]:
    """Return squares of the map's left part, every 6 pixels, and those of its right part."""
    path = Path(mpl.get_data_path()) / "sample_data" / "jacksboro_fault_dem.npz"
    with np.load(path) as file:
        heights = torch.tensor(file["elevation"].astype(np.float32))
    parts = (heights[:, :300], heights[:, 300:])
    cut = [part.unfold(0, SIDE, 6).unfold(1, SIDE, 6) for part in parts]
    left, right = (squares.reshape(-1, 1, SIDE, SIDE) for squares in cut)
    return left, right


def _data(run: Run) -> Split:
    train, valid = _squares()
    if not run.injects("missing_normalisation"):
        train, valid = (part - part.mean((2, 3), keepdim=True) for part in (train, valid))
        train, valid = train / train.std(), valid / train.std()
    return Split(train, train, valid, valid)


def train(run: Run) -> float:
    """Train once; return the share of the relief's variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    part = run.pick(model, optimiser_missing_parameters=model.encoder)
    loop = Loop(
        model=model,
        criterion=run.pick(nn.MSELoss(), wrong_loss=nn.BCEWithLogitsLoss()),
        optimizer=torch.optim.Adam(part.parameters(), lr=3e-3),
        steps=320,
        eval_every=40,
    )
    relief = _squares()[1]
    relief = relief - relief.mean((2, 3), keepdim=True)

    def error(again: Tensor, targets: Tensor) -> float:
        if run.injects("missing_normalisation"):
            return float((again - targets).square().mean() / relief.var(correction=0))
        return unexplained(again, targets)

    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="convolutional autoencoder, strides, 16 numbers, transposed convolutions, ReLU, Adam",
    data="squares of matplotlib's jacksboro_fault_dem, the right quarter held out",
    measure="1 - R2",
    train=train,
    faults={
        "init_constant": "all parameters are 0",
        "dead_relu": "all biases are -10",
        "missing_normalisation": "heights are metres above the sea",
        "wrong_loss": "binary cross entropy, for targets that are no probabilities",
        "frozen_layer": "the encoder is called under no_grad",
        "optimiser_missing_parameters": "the optimiser has the encoder only",
    },
)
