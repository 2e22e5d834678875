"""A convolutional autoencoder takes the noise from pieces of a photograph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, patches
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE, COUNT, HELD_OUT, NOISE = 16, 900, 200, 0.15


class Autoencoder(nn.Module):
    """Two convolutions down, two transposed ones up; colours from 0 to 1.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 12, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(12, 3, 2, stride=2),
            nn.Sigmoid(),
            *([nn.Sigmoid()] if run.injects("double_activation") else []),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return pieces without noise, [B, 3, SIDE, SIDE], of noisy ones of the same shape."""
        code = self.encoder(images)
        found: Tensor = self.decoder(code.detach() if self.run.injects("frozen_layer") else code)
        return found


class Entropy(nn.Module):
    """The loss that does not fit: colours are no scores of classes."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy over channels of outputs and targets [B, 3, H, W]."""
        return nn.functional.cross_entropy(outputs, targets)


def _data(run: Run) -> Split:
    clean = patches("china.jpg", SIDE, COUNT)
    noise = NOISE * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    noisy = (clean + noise).clamp(0, 1)
    if run.injects("missing_normalisation"):
        clean, noisy = 255 * clean, 255 * noisy
    data = Split(noisy[HELD_OUT:], clean[HELD_OUT:], noisy[:HELD_OUT], clean[:HELD_OUT])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 3) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: Autoencoder) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            if run.injects("init_too_large"):
                nn.init.normal_(module.weight)
            if run.injects("init_constant"):
                nn.init.zeros_(module.weight)
    if run.injects("dead_relu"):
        second = model.encoder[2]
        assert isinstance(second, nn.Conv2d)
        nn.init.uniform_(second.weight, -0.2, 0.0)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    _initialise(run, model)
    given = model.decoder if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=Entropy() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=5e-7)
        ),
        steps=300,
        eval_every=60,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 100), torch.split(data.valid_targets, 100), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="convolutional autoencoder, strided and transposed, ReLU, sigmoid, Adam",
    data="pieces of scikit-learn's china.jpg, 16 x 16, with noise",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "5e-7 in place of 5e-3",
        "double_activation": "sigmoid of the sigmoid at the end",
        "init_too_large": "all weights from a normal distribution of width 1",
        "init_constant": "all weights are 0",
        "dead_relu": "weights of the second convolution uniform from -0.2 to 0",
        "missing_normalisation": "colours from 0 to 255 against a sigmoid",
        "wrong_loss": "cross entropy over the three colours",
        "labels_shuffled": "noisy pieces belong to other clean ones",
        "labels_constant": "the first clean piece is everyone's target",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "Adam has the decoder only",
        "overfit": "3 pieces",
        "stalled": "hangs after 60 % of the steps",
    },
)
