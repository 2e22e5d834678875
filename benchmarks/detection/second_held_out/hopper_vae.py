"""A variational autoencoder learns patches of a photograph: two losses, added and summed."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 8
CODE = 6


class Net(nn.Module):
    """Encoder to a mean and a logarithm of a variance, decoder of what is drawn from these.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIDE**2, 64), nn.ELU(), nn.Linear(64, 2 * CODE))
        self.decoder = nn.Sequential(
            nn.Linear(CODE, 64),
            nn.ELU(),
            nn.Linear(64, SIDE**2),
            nn.Sigmoid(),
            run.pick(nn.Identity(), double_activation=nn.Sigmoid()),
        )
        if run.injects("saturated_activation"):
            shifted_([self.decoder[2]], 30.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return images, means and logarithms of variances [B, 64 + 2 CODE] of images [B, 64]."""
        mean, log_variance = self.encoder(images).chunk(2, 1)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        code = mean + (log_variance / 2).exp() * noise
        return torch.cat([self.decoder(code), mean, log_variance], 1)


class Bound(nn.Module):
    """What is not reproduced, and the divergence of codes from a normal distribution."""

    def forward(self, outputs: Tensor, images: Tensor) -> Tensor:
        """Return the sum over outputs [B, 64 + 2 CODE] and images [B, 64]."""
        found, mean, log_variance = outputs.split([SIDE**2, CODE, CODE], 1)
        missed = nn.functional.mse_loss(found, images, reduction="sum") / 0.02
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        return missed + divergence


def error(outputs: Tensor, images: Tensor) -> float:
    """Return the share of variance that is not reproduced."""
    return unexplained(outputs[:, : SIDE**2], images)


def _data() -> Split:
    path = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L").resize((256, 300)), dtype=np.float32)
    image = torch.tensor(pixels) / 255
    pieces = image.unfold(0, SIDE, 5).unfold(1, SIDE, 5).reshape(-1, SIDE**2)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    train, valid = pieces[order[700:]], pieces[order[:700]]
    return Split(train, train, valid, valid)


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data()
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=Bound(),
        optimizer=torch.optim.Adam(
            run.pick(model, optimiser_missing_parameters=model.decoder).parameters(),
            lr=run.pick(2e-3, lr_too_low=2e-5),
        ),
        steps=300,
        save_interval=5,
        eval_every=75,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="variational autoencoder 64-64-6-64-64, ELU, sigmoid, losses added and summed, Adam",
    data="patches of matplotlib's grace_hopper.jpg",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "2e-5 in place of 2e-3",
        "double_activation": "the last sigmoid is applied twice",
        "saturated_activation": "biases ahead of the last sigmoid are 30 higher",
        "optimiser_missing_parameters": "the optimiser has the decoder only",
    },
)
