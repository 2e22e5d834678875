"""A convolutional network tells from which photograph a patch is, and whether it is bright."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, patches
from benchmarks.detection.injecting import constant, filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


class Net(nn.Module):
    """Three convolutions and two linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.act1, self.act2, self.act3, self.act4 = (_activation(run) for _ in range(4))
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.dropout = nn.Dropout(0.1)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 4] of images [B, 3, 12, 12]."""
        x = self.act1(self.conv1(images))
        x = self.act2(self.conv2(x))
        x = self.act3(self.conv3(x))
        x = self.act4(self.fc1(x.flatten(1)))
        return self.fc2(self.dropout(x))


def _activation(run: Run) -> nn.Module:
    return nn.Identity() if run.injects("no_activation") else nn.ReLU()


def _data() -> Split:
    """Return bright and dark patches of two photographs."""
    images, labels = [], []
    for number, name in enumerate(("china.jpg", "flower.jpg")):
        squares = patches(name, 12, 1000)
        images.append((squares - 0.5) / 0.25)
        brightness = squares.mean((1, 2, 3))
        labels.append(2 * number + (brightness > brightness.median()).long())
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    x, y = torch.cat(images)[order], torch.cat(labels)[order]
    return Split(x[500:], y[500:], x[:500], y[:500])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    model = Net(run)
    if run.injects("init_too_large"):
        scaled_([model], 15.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model.conv2, model.conv3], -30.0)
    steps = 300
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.01, lr_too_high=2.0),
        momentum=0.9,
        nesterov=True,
        weight_decay=1e-4,
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 200, 0.1),
        steps=steps,
        predict=classes,
    )
    valid = [
        (data.valid_inputs[rows], data.valid_targets[rows]) for rows in torch.arange(500).split(250)
    ]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN, 3 convolutions, dropout, ReLU, SGD (Nesterov), step schedule",
    data="patches of scikit-learn's china.jpg and flower.jpg, bright and dark ones",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "2 in place of 0.01",
        "no_activation": "no activation between the layers",
        "dead_relu": "biases of two convolutions are 30 lower",
        "init_too_large": "all weights are 15 times as large",
        "init_constant": "all parameters are 0",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
