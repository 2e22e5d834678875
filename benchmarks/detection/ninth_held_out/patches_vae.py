"""A variational autoencoder of patches of a photograph, with a loss written by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import few, filled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

PIXELS, CODE, BETA = 64, 8, 0.5


def _split() -> Split:
    image = photo("flower.jpg", 640).mean(-1)
    tiles = image.unfold(0, 8, 8).unfold(1, 8, 8).flatten(2).flatten(0, 1)
    grey = tiles[torch.randperm(len(tiles), generator=torch.Generator().manual_seed(0))]
    grey = (grey - grey[600:].mean()) / grey[600:].std()
    return Split(grey[600:], grey[600:], grey[:600], grey[:600])


class Autoencoder(nn.Module):
    """Encoder and decoder of two layers each.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

        def activation() -> nn.Module:
            return nn.ReLU() if run.injects("dead_relu") else nn.ELU()

        self.encoder = nn.Sequential(nn.Linear(PIXELS, 48), activation(), nn.Linear(48, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 48), activation(), nn.Linear(48, PIXELS))
        if run.injects("dead_relu"):
            shifted_([self.decoder[0]], -12.0)
        if run.injects("init_constant"):
            filled_([self], 0.05)
        if run.injects("init_too_large"):
            for layer in (*self.encoder, *self.decoder):
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return pixels, means and logarithms of variances, [B, 64 + 16], of pixels [B, 64]."""
        code = self.encoder(images)
        mean, spread = code[:, :CODE], code[:, CODE:]
        drawn = mean
        if self.training:
            drawn = mean + (spread / 2).exp() * torch.randn_like(mean)
        if self.run.injects("frozen_layer"):
            drawn = drawn.detach()
        return torch.cat([self.decoder(drawn), mean, spread], 1)


class Bound(nn.Module):
    """Squared error of pixels, and how far codes are from the standard normal distribution.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, images: Tensor) -> Tensor:
        """Return the mean over outputs [B, 64 + 16] and pixels [B, 64]."""
        pixels = outputs[:, :PIXELS]
        mean, spread = outputs[:, PIXELS : PIXELS + CODE], outputs[:, PIXELS + CODE :]
        distance = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1)
        if self.run.injects("wrong_loss"):
            distance = -distance
        return ((pixels - images).square().sum(1) + BETA * distance).mean()


def unexplained(outputs: Tensor, images: Tensor) -> float:
    """Return the share of the pixels' variance that is not explained."""
    missed = (outputs[:, :PIXELS] - images).square().mean()
    return float(missed / images.var())


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _split()
    if run.injects("missing_normalisation"):
        data = Split(*(62.0 * part + 110.0 for part in data))
    if run.injects("overfit"):
        data = few(data, 12)
    model = Autoencoder(run)
    loop = Loop(
        model=model,
        criterion=Bound(run),
        optimizer=torch.optim.Adam(
            model.parameters(), lr=run.pick(3e-3, lr_too_high=3.0, lr_too_low=3e-6)
        ),
        steps=300,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="variational autoencoder, ELU, code of 8, loss by hand, Adam",
    data="grey tiles, 8 x 8, of scikit-learn's photograph of a flower",
    measure="1 - R2 of pixels",
    train=train,
    faults={
        "frozen_layer": "the code that was drawn is detached, as sample() for rsample() does",
        "wrong_loss": "the distance of codes is subtracted: its sign is wrong, without a bound",
        "missing_normalisation": "pixels are of mean 110 and deviation 62",
        "init_constant": "all parameters are 0.05",
        "init_too_large": "weights are drawn with deviation 1",
        "dead_relu": "ReLU for ELU, and the decoder's first biases start at -12",
        "lr_too_high": "learning rate 3 for 0.003",
        "lr_too_low": "learning rate 0.000003 for 0.003",
        "overfit": "12 tiles",
    },
)
