"""A convolutional network with batch normalisation classifies handwritten digits."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit, nearest_class


class Net(nn.Module):
    """Two convolutions and one linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 2 * 2, run.pick(10, wrong_loss=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        x = images.view(-1, 1, 8, 8)
        x = self.pool(self.relu1(self.bn1(self.conv1(x))))
        x = self.pool(self.relu2(self.bn2(self.conv2(x))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        return self.fc(x.flatten(1))


class SquaredDistance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of classes [B]."""
        return (outputs[:, 0] - labels.float()).square().mean()


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data, model = with_fault(run, digits(), one_in=60), Net(run)
    predict = run.pick(classes, wrong_loss=partial(nearest_class, count=10))

    def error(outputs: Tensor, targets: Tensor) -> float:
        return float((predict(outputs) != targets).float().mean())

    criterion = run.pick(nn.CrossEntropyLoss(), wrong_loss=SquaredDistance())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loop = Loop(model, criterion, optimizer, 200, save_interval=4, predict=predict)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation(128), error)
