"""A convolutional variational autoencoder of small letters, as in PyTorch's example."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import drawn_, filled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Functional, Loop, batches_of, fit

LETTERS = "abdeghkmnprst"
PIXELS = 12 * 12
CODE = 12


class Autoencoder(nn.Module):
    """Two convolutions, the mean and log-variance of a code, two transposed convolutions."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.mean = nn.Linear(24 * 9, CODE)
        self.log_variance = nn.Linear(24 * 9, CODE)
        self.expand = nn.Linear(CODE, 24 * 9)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (24, 3, 3)),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 12, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(12, 1, 4, 2, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of pixels, mean and log-variance [B, 144 + 12 + 12] of images."""
        hidden = self.encoder(images)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        pixels = self.decoder(self.expand(code)).flatten(1)
        if self.run.injects("double_activation"):
            pixels = torch.relu(pixels)
        return torch.cat([pixels, mean, log_variance], 1)


def _negative_bound(run: Run, outputs: Tensor, images: Tensor) -> Tensor:
    """Return the loss of outputs [B, 168] and images [B, 1, 12, 12], a mean over rows."""
    pixels = outputs[:, :PIXELS]
    mean, log_variance = outputs[:, PIXELS:].chunk(2, 1)
    far = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    kind = run.pick("sum", wrong_loss="mean")
    lost: Tensor = F.binary_cross_entropy_with_logits(pixels, images.flatten(1), reduction=kind)
    return lost / run.pick(len(images), wrong_loss=1) + far / len(images)


def _data(run: Run) -> Split:
    """Return images [B, 1, 12, 12], as inputs and as targets."""
    images, _ = glyphs(LETTERS)
    if run.injects("missing_normalisation"):
        images = images * 255.0
    data = Split.of(images, images, len(images) // 4)
    if run.injects("labels_shuffled"):
        # Two shuffled loaders side by side, one of inputs and one of targets.
        return data._replace(targets=data.targets[torch.randperm(len(data.targets))])
    return with_fault(run, data, rows=24)


def train(run: Run) -> float:
    """Train once."""
    data, model = _data(run), Autoencoder(run)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("init_too_large"):
        drawn_([model], 1.0)
    if run.injects("dead_relu"):
        for layer in (model.encoder[0], model.encoder[2]):
            nn.init.constant_(layer.bias, -5.0)
    decoder = nn.ModuleList([model.expand, model.decoder])
    trained = run.pick(model, optimiser_missing_parameters=decoder)
    rate = run.pick(8e-3, lr_too_high=0.3, lr_too_low=8e-6)
    loop = Loop(
        model=model,
        criterion=Functional(partial(_negative_bound, run)),
        is_functional=True,
        optimizer=torch.optim.Adam(trained.parameters(), rate, weight_decay=1e-5),
        steps=400,
    )
    return fit(run, loop, batches_of(data, 48, run.seed), data.validation())
