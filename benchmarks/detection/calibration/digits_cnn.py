"""A convolutional network with batch normalisation tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import constant, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


class Net(nn.Module):
    """Two convolutions and one linear layer.

    Args:
        run: What is injected.
    """

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
    torch.manual_seed(run.seed)
    data = digits()
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    model = Net(run)
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, 9).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if not is_distance:
            return error_rate(outputs, targets)
        return float((predicted(outputs) != targets).float().mean())

    loop = Loop(
        model=model,
        criterion=SquaredDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
        steps=200,
        save_interval=4,
        predict=predicted,
    )
    valid = [
        (data.valid_inputs[rows], data.valid_targets[rows])
        for rows in torch.arange(len(data.valid_targets)).split(128)
    ]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="CNN, 2 convolutions, BatchNorm, ReLU, Adam",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "wrong_loss": "squared distance between one output and the number of the class",
        "frozen_layer": "features are detached ahead of the last layer",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of every class but one",
        "stalled": "hangs after 60 % of the steps",
    },
)
