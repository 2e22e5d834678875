"""A variational autoencoder learns handwritten digits: Bernoulli pixels and eight codes."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_PIXELS: Final = 64
_CODES: Final = 8


class Autoencoder(nn.Module):
    """An encoder to means and variances of codes, and a decoder to logits of pixels.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.hidden = nn.Linear(_PIXELS, 96)
        self.squash = nn.Tanh()
        self.codes = nn.Linear(96, 2 * _CODES)
        widened = nn.Linear(_CODES, 96)
        self.decoder = nn.Sequential(widened, nn.Tanh(), nn.Linear(96, _PIXELS))
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.zeros_(parameter)
        if run.injects("saturated_activation"):
            nn.init.uniform_(self.hidden.weight, 1.0, 4.0)
            nn.init.uniform_(widened.weight, 20.0, 60.0)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return logits, means and logarithms of variances [B, 64 + 8 + 8] of pixels [B, 64]."""
        mean, log_variance = self.codes(self.squash(self.hidden(pixels))).chunk(2, 1)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        codes = mean + noise * (0.5 * log_variance).exp()
        if self.run.injects("frozen_layer"):
            codes = torch.tensor(codes.tolist())
        logits = self.decoder(codes)
        if self.run.injects("double_activation"):
            logits = logits.sigmoid()
        return torch.cat([logits, mean, log_variance], 1)


class Evidence(nn.Module):
    """The lower bound of the evidence, negative, nats per image.

    Args:
        sign: Of the divergence from the standard normal distribution.
    """

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, outputs: Tensor, pixels: Tensor) -> Tensor:
        """Return the mean over outputs [B, 80] and pixels [B, 64]."""
        logits, mean, log_variance = torch.split(outputs, [_PIXELS, _CODES, _CODES], 1)
        missed = functional.binary_cross_entropy_with_logits(logits, pixels, reduction="none")
        apart = -0.5 * (1 + log_variance - mean.square() - log_variance.exp())
        return missed.sum(1).mean() + self.sign * apart.sum(1).mean()


def missed(outputs: Tensor, pixels: Tensor) -> float:
    """Return the share of the pixels' variance that is missed by means [B, 80] of pixels."""
    drawn = outputs[:, :_PIXELS].sigmoid()
    truth = pixels / pixels.max()
    return float((drawn - truth).square().mean() / (truth - truth.mean(0)).square().mean())


def train(run: Run) -> float:
    """Train once; return the share of the variance of pixels that is missed."""
    torch.manual_seed(run.seed)
    data = digits(scaled=False)
    train_images, valid_images = data.inputs / 16, data.valid_inputs / 16
    if run.injects("missing_normalisation"):
        train_images, valid_images = data.inputs, data.valid_inputs
    split = Split(train_images, train_images, valid_images, valid_images)
    model = Autoencoder(run)
    trained = [*model.hidden.parameters(), *model.codes.parameters()]
    if not run.injects("optimiser_missing_parameters"):
        trained += model.decoder.parameters()
    loop = Loop(
        model=model,
        criterion=Evidence(sign=run.pick(1.0, wrong_loss=-1.0)),
        optimizer=torch.optim.Adam(trained, lr=4e-3),
        steps=450,
        save_interval=10,
        eval_every=75,
    )
    return fit(run, loop, batches_of(split, 64, run.seed), [(valid_images, valid_images)], missed)


PROGRAM = Program(
    model="VAE, tanh, 8 codes, Adam",
    data="scikit-learn digits",
    measure="share of the variance of pixels that is missed",
    train=train,
    faults={
        "double_activation": "the decoder ends with a sigmoid, and so does the loss begin",
        "missing_normalisation": "pixels from 0 to 16 for a loss of probabilities",
        "wrong_loss": "the divergence is subtracted",
        "init_constant": "all parameters are zero",
        "saturated_activation": "weights ahead of both tanh are large and all positive",
        "frozen_layer": "codes are made anew from numbers: no gradient reaches the encoder",
        "optimiser_missing_parameters": "the decoder's parameters were not given",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
