"""A variational autoencoder of handwritten digits."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import filled_, scaled_, shifted_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit

PIXELS, HIDDEN, CODE = 64, 96, 10


class Vae(nn.Module):
    """Encoder, sampling, decoder."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.hidden = nn.Linear(PIXELS, HIDDEN)
        self.mean = nn.Linear(HIDDEN, CODE)
        self.log_variance = nn.Linear(HIDDEN, CODE)
        self.widen = nn.Linear(CODE, HIDDEN)
        self.paint = nn.Linear(HIDDEN, PIXELS)
        self.activation = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of pixels, means and log variances, [B, 64 + 10 + 10], of [B, 64]."""
        x = self.activation(self.hidden(images))
        mean, log_variance = self.mean(x), self.log_variance(x)
        code = mean
        if self.training:
            width = (log_variance / 2).exp()
            normal = torch.distributions.Normal(mean, width, validate_args=False)
            draw = normal.sample if self.run.injects("frozen_layer") else normal.rsample
            code = draw()
        pixels = self.paint(self.activation(self.widen(code)))
        if self.run.injects("double_activation"):
            pixels = pixels.sigmoid()
        return torch.cat([pixels, mean, log_variance], 1)


def _negative_bound(run: Run, outputs: Tensor, images: Tensor) -> Tensor:
    """Return the loss per image of outputs [B, 64 + 10 + 10] and images [B, 64]."""
    scores, codes = outputs[:, :PIXELS], outputs[:, PIXELS:]
    mean, log_variance = codes[:, :CODE], codes[:, CODE:]
    averaged = run.pick("sum", wrong_loss="mean")
    rebuilt = functional.binary_cross_entropy_with_logits(scores, images, reduction=averaged)
    if averaged == "sum":
        rebuilt = rebuilt / len(images)
    distance = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
    loss: Tensor = rebuilt + distance.mean()
    return loss


def _data(run: Run) -> Split:
    """Return images [B, 64] from 0 to 1 as inputs and as targets."""
    data = digits(scaled=False)
    white = run.pick(16.0, missing_normalisation=1.0)
    inputs, valid = data.inputs / white, data.valid_inputs / white
    return with_fault(run, Split(inputs, inputs, valid, valid), rows=20)


def train(run: Run) -> float:
    data, model = _data(run), Vae(run)
    scaled_(run, "init_too_large", [model], 8.0)
    filled_(run, "init_constant", [model], 0.0)
    shifted_(run, "dead_relu", [model.hidden], -6.0)
    shifted_(run, "saturated_activation", [model.paint], 12.0)
    decoder = nn.ModuleList([model.widen, model.paint])
    trained = run.pick(model, optimiser_missing_parameters=decoder)
    rate = run.pick(4e-3, lr_too_high=0.3, lr_too_low=2e-6)
    criterion = partial(_negative_bound, run)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(model, criterion, optimizer, 400)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation())
