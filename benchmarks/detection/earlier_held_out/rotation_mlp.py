"""A multilayer perceptron tells by which angle a handwritten digit is turned."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy import ndimage  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

TURNS = 4
LARGEST = 60.0
"""Degrees."""
DIGITS = (1, 2, 3, 4, 5, 7)
"""Those that look otherwise when they are turned."""


@cache
def turned() -> tuple[Tensor, Tensor, int]:
    """Return images from 0 to 255, [B, 64], angles in degrees, [B, 1], and how many to validate."""
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    images = images[np.isin(labels, DIGITS)].reshape(-1, 8, 8) * 255 / 16
    images = images[random.permutation(len(images))]
    angles = random.uniform(-LARGEST, LARGEST, (len(images), TURNS))
    rows = [
        ndimage.rotate(image, angle, reshape=False, order=1).ravel()
        for image, own in zip(images, angles, strict=True)
        for angle in own
    ]
    inputs = torch.tensor(np.array(rows), dtype=torch.float32)
    targets = torch.tensor(angles.reshape(-1, 1), dtype=torch.float32)
    return inputs, targets, len(images) // 5 * TURNS


def data_of(run: Run) -> Split:
    """Return images with a mean of 0 and a variance of 1, and angles from -1 to 1."""
    inputs, targets, cut = turned()
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[cut:].mean()) / inputs[cut:].std()
    targets = targets / LARGEST
    data = Split(inputs[cut:], targets[cut:], inputs[:cut], targets[:cut])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 80) if run.injects("overfit") else data


class Angle(nn.Module):
    """Three linear layers with ReLUs and dropout, and a tanh at the end.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        activation = nn.Identity if run.injects("no_activation") else nn.ReLU
        dropout = 0.0 if run.injects("overfit") else 0.1
        self.fc1, self.act1 = nn.Linear(64, 128), activation()
        self.drop = nn.Dropout(dropout)
        self.fc2, self.act2 = nn.Linear(128, 64), activation()
        self.fc3, self.tanh = nn.Linear(64, 1), nn.Tanh()
        for layer in (self.fc1, self.fc2):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if run.injects("init_too_large"):
            for layer in (self.fc1, self.fc2, self.fc3):
                nn.init.normal_(layer.weight)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("dead_relu"):
            shifted_([self.fc2], -30.0)
        if run.injects("saturated_activation"):
            scaled_([self.fc3], 100.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return angles [B, 1] of images [B, 64]."""
        x = self.drop(self.act1(self.fc1(images)))
        x = self.act2(self.fc2(x))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        angle: Tensor = self.tanh(self.fc3(x))
        return self.tanh(angle) if self.run.injects("double_activation") else angle


class MeanDifference(nn.Module):
    """A loss whose square was forgotten: errors of both signs cancel."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of outputs [B, 1] minus targets [B, 1], without its sign."""
        return (outputs - targets).mean().abs()


def train(run: Run) -> float:
    """Train once; return the share of unexplained variance."""
    torch.manual_seed(run.seed)
    data = data_of(run)
    model = Angle(run)
    rate = run.pick(1e-3, lr_too_high=0.3, lr_too_low=1e-6)
    loop = Loop(
        model=model,
        criterion=MeanDifference() if run.injects("wrong_loss") else nn.SmoothL1Loss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-2),
        steps=350,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP, 2 hidden layers of ReLUs, dropout, tanh at the end, AdamW",
    data="scikit-learn digits, turned by up to 60 degrees",
    measure="1 - R2",
    train=train,
    faults={
        "no_activation": "no ReLU between the linear layers",
        "double_activation": "tanh of an output that went through one",
        "dead_relu": "biases of the second layer are 30 lower",
        "missing_normalisation": "pixels from 0 to 255 as they are",
        "init_constant": "all parameters are zero",
        "init_too_large": "weights N(0, 1)",
        "wrong_loss": "the absolute value of the mean difference, not the mean of absolute ones",
        "lr_too_high": "0.3 in place of 1e-3",
        "lr_too_low": "1e-6 in place of 1e-3",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are the same",
        "frozen_layer": "features are detached ahead of the last layer",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "80 images, no dropout",
    },
)
