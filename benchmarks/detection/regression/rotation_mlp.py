"""A multilayer perceptron predicts by which angle a handwritten digit is turned."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy import ndimage  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import drawn_, filled_, scaled_, shifted_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit

TURNS = 4
LARGEST = 60.0
"""Degrees."""
DIGITS = (1, 2, 3, 4, 5, 7)
"""Those that look otherwise when they are turned."""


@cache
def _turned() -> tuple[Tensor, Tensor, int]:
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


def _data(run: Run) -> Split:
    """Return images with a mean of 0 and a variance of 1, and angles from -1 to 1."""
    inputs, targets, held_out = _turned()
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[held_out:].mean()) / inputs[held_out:].std()
    return with_fault(run, Split.of(inputs, targets / LARGEST, held_out), rows=80)


class Angle(nn.Module):
    """Three linear layers with ReLUs and dropout, and a tanh at the end."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        activation = run.pick(nn.ReLU, no_activation=nn.Identity)
        self.fc1, self.act1 = nn.Linear(64, 128), activation()
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.fc2, self.act2 = nn.Linear(128, 64), activation()
        self.fc3, self.tanh = nn.Linear(64, 1), nn.Tanh()
        for layer in (self.fc1, self.fc2):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        drawn_(run, "init_too_large", [self], 1.0, only_weights=True)
        filled_(run, "init_constant", [self], 0.0)
        shifted_(run, "dead_relu", [self.fc2], -30.0)
        scaled_(run, "saturated_activation", [self.fc3], 100.0)

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
    data, model = _data(run), Angle(run)
    rate = run.pick(1e-3, lr_too_high=0.3, lr_too_low=1e-6)
    criterion = run.pick(nn.SmoothL1Loss(), wrong_loss=MeanDifference())
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-2)
    loop = Loop(model, criterion, optimizer, 350)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation())
