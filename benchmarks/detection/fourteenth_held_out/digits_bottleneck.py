"""An autoencoder with tanh squeezes handwritten digits into a few numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

CODE = 16


class Autoencoder(nn.Module):
    """Two linear layers down to a code, two up to a logit for each pixel.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 64), nn.Tanh(), nn.Linear(64, 64))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of pixels [B, 64] of images [B, 64]."""
        code = self.encoder(images)
        logits: Tensor = self.decoder(code.detach() if self.run.injects("frozen_layer") else code)
        return logits.sigmoid() if self.run.injects("double_activation") else logits


class Loss(nn.Module):
    """Binary cross entropy of pixels as a function, or what does not fit.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, logits: Tensor, pixels: Tensor) -> Tensor:
        """Return the mean over logits and pixels [B, 64]."""
        if self.run.injects("wrong_loss"):
            return nn.functional.cross_entropy(logits, pixels)
        return nn.functional.binary_cross_entropy_with_logits(logits, pixels)


def _data(run: Run) -> Split:
    data = digits(scaled=False)
    scale = 1.0 if run.injects("missing_normalisation") else 16.0
    images, valid = data.inputs / scale, data.valid_inputs / scale
    data = Split(images, images, valid, valid)
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 24) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: Autoencoder) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if run.injects("init_too_large"):
                nn.init.normal_(module.weight)
            if run.injects("init_constant"):
                nn.init.constant_(module.weight, 0.1)
    if run.injects("saturated_activation"):
        first = model.encoder[0]
        assert isinstance(first, nn.Linear)
        nn.init.constant_(first.weight, 1.0)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    _initialise(run, model)
    given = model.decoder if run.injects("optimiser_missing_parameters") else model

    def error(logits: Tensor, pixels: Tensor) -> float:
        return unexplained(logits.sigmoid(), pixels)

    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=torch.optim.Adam(given.parameters(), lr=run.pick(5e-3, lr_too_high=1.0)),
        steps=400,
        eval_every=80,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="autoencoder, 4 linear layers, tanh, a code of 16 numbers, Adam",
    data="scikit-learn digits, pixels from 0 to 1",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "double_activation": "sigmoid ahead of the loss with its own",
        "init_too_large": "all weights from a normal distribution of width 1",
        "init_constant": "all weights are 0.1",
        "saturated_activation": "weights of the first layer are 1",
        "missing_normalisation": "pixels from 0 to 16, which are no probabilities",
        "wrong_loss": "cross entropy over the 64 pixels",
        "labels_shuffled": "targets are images of other rows",
        "labels_constant": "the first image is everyone's target",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "Adam has the decoder only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "24 images",
        "stalled": "hangs after 60 % of the steps",
    },
)
