"""An autoencoder learns a short code of printed letters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few, scaled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


class Autoencoder(nn.Module):
    """Encoder and decoder of two layers each.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

        self.encoder = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 24))
        self.decoder = nn.Sequential(
            nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 144), nn.Sigmoid()
        )
        if run.injects("dead_relu"):
            shifted_([self.decoder[0]], -12.0)
        if run.injects("saturated_activation"):
            scaled_([self.decoder[2]], 400.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return images [B, 144] from 0 to 1."""
        code = self.encoder(images)
        images_again: Tensor = self.decoder(
            code.detach() if self.run.injects("frozen_layer") else code
        )
        return images_again


def _data(run: Run) -> Split:
    images = glyphs("abdeghknrstz")[0].flatten(1)
    data = Split(images[250:], images[250:], images[:250], images[:250])
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    part = run.pick(model, optimiser_missing_parameters=model.encoder)
    loop = Loop(
        model=model,
        criterion=nn.BCELoss(),
        optimizer=torch.optim.Adam(part.parameters(), lr=run.pick(5e-3, lr_too_low=2e-6)),
        steps=300,
        eval_every=60,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="autoencoder 144-128-24-128-144, ReLU, sigmoid, binary cross entropy, Adam",
    data="12 letters in the fonts that come with matplotlib",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "2e-6 in place of 5e-3",
        "dead_relu": "biases of the decoder's hidden layer are 12 lower",
        "saturated_activation": "weights ahead of the sigmoid are 400 times as large",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "the optimiser has the encoder only",
        "overfit": "40 rows for training",
    },
)
