"""A convolutional variational autoencoder of small letters, as in PyTorch's example."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LETTERS = "abdeghkmnprst"
SIDE = 12
PIXELS = SIDE * SIDE
CODE = 12


class Autoencoder(nn.Module):
    """Two convolutions, the mean and log-variance of a code, two transposed convolutions.

    Args:
        run: What is injected.
    """

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


class NegativeBound(nn.Module):
    """Functions that the training calls: what is lost by the code, and how far it is from normal.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, images: Tensor) -> Tensor:
        """Return the loss of outputs [B, 168] and images [B, 1, 12, 12], a mean over rows."""
        pixels = outputs[:, :PIXELS]
        mean, log_variance = outputs[:, PIXELS:].chunk(2, 1)
        far = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        kind = self.run.pick("sum", wrong_loss="mean")
        lost: Tensor = F.binary_cross_entropy_with_logits(pixels, images.flatten(1), reduction=kind)
        rows = self.run.pick(len(images), wrong_loss=1)
        return lost / rows + far / len(images)


def prepared(run: Run) -> Split:
    """Return images [B, 1, 12, 12], as inputs and as targets."""
    images, _ = glyphs(LETTERS)
    if run.injects("missing_normalisation"):
        images = images * 255.0
    held_out = len(images) // 4
    train, valid = images[held_out:], images[:held_out]
    data = Split(train, train, valid, valid)
    if run.injects("labels_shuffled"):
        # Two shuffled loaders side by side, one of inputs and one of targets.
        data = data._replace(targets=train[torch.randperm(len(train))])
    return few(data, 24) if run.injects("overfit") else data


def error_for(run: Run, outputs: Tensor, images: Tensor) -> float:
    """Return the share of the variance of pixels that is not in what is decoded."""
    if not outputs.isfinite().all():
        return 1.0
    scale = 255.0 if run.injects("missing_normalisation") else 1.0
    return unexplained(outputs[:, :PIXELS].sigmoid(), images.flatten(1) / scale)


def train(run: Run) -> float:
    """Train once; return the share of variance that is lost."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Autoencoder(run)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    if run.injects("dead_relu"):
        for layer in model.encoder:
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.constant_(layer.bias, -5.0)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.expand.parameters(), *model.decoder.parameters()]
    loop = Loop(
        model=model,
        criterion=NegativeBound(run),
        is_functional=True,
        optimizer=torch.optim.Adam(
            trained, lr=run.pick(8e-3, lr_too_high=0.3, lr_too_low=8e-6), weight_decay=1e-5
        ),
        steps=400,
    )
    valid = [(data.valid_inputs, data.valid_targets)]

    def error(outputs: Tensor, images: Tensor) -> float:
        return error_for(run, outputs, images)

    return fit(run, loop, batches_of(data, 48, run.seed), valid, error)


PROGRAM = Program(
    model="variational autoencoder, 4 convolutions, ReLU, Adam",
    data="13 small letters in the fonts of matplotlib",
    measure="share of the variance of pixels that is lost",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 8e-3",
        "lr_too_low": "8e-6 in place of 8e-3",
        "double_activation": "ReLU ahead of the pixels' sigmoid, so that none is below a half",
        "init_constant": "all parameters are zero",
        "init_too_large": "nn.init.normal_ with its standard deviation of 1 for all parameters",
        "dead_relu": "biases of the encoder's convolutions start at -5",
        "missing_normalisation": "pixels from 0 to 255",
        "wrong_loss": "a mean over pixels beside a distance that is a sum: the code collapses",
        "labels_shuffled": "targets are the images of other rows",
        "optimiser_missing_parameters": "the optimiser has the decoder only",
        "overfit": "24 images",
        "stalled": "hangs after 60 % of the steps",
    },
)
