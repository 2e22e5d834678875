"""The network of PyTorch's CIFAR10 tutorial tells of which picture a tile is."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

SIDE = 16
CLASSES = 3


class Net(nn.Module):
    """Two convolutions and three linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(3, 8, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, CLASSES)

    def forward(self, tiles: Tensor) -> Tensor:
        """Return scores [B, 3] of tiles [B, 3, 16, 16]."""
        x = self.pool(self.bend(self.conv1(tiles)))
        x = self.pool(self.bend(self.conv2(x)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = self.bend(self.fc1(x.flatten(1)))
        x = self.fc3(self.bend(self.fc2(x)))
        return F.softmax(x, dim=1) if self.run.injects("double_activation") else x

    def bend(self, x: Tensor) -> Tensor:
        """Return what comes after a layer."""
        return x if self.run.injects("no_activation") else F.relu(x)


class Score(nn.Module):
    """Functions that the training calls: the cross entropy, or half of it.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 3] and labels, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return F.nll_loss(scores, labels)
        return F.cross_entropy(scores, labels)


def tiles() -> tuple[Tensor, Tensor]:
    """Return tiles, float32 [B, 3, 16, 16] from 0 to 1, and of which picture they are [B]."""
    folder = Path(mpl.get_data_path()) / "sample_data"
    pictures = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    pictures.append(np.asarray(Image.open(folder / "grace_hopper.jpg")))
    found, labels = [], []
    for label, picture in enumerate(pictures):
        image = torch.tensor(picture / 255.0, dtype=torch.float32).permute(2, 0, 1)
        cut = image.unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE).permute(1, 2, 0, 3, 4)
        cut = cut.flatten(0, 1)
        cut = cut[cut.std((1, 2, 3)) > 1e-2]  # noqa: PLR2004 - not the empty ones
        found.append(cut)
        labels.append(torch.full((len(cut),), label))
    order = torch.randperm(sum(map(len, labels)), generator=torch.Generator().manual_seed(0))
    return torch.cat(found)[order], torch.cat(labels)[order]


def prepared(run: Run) -> Split:
    """Return tiles [B, 3, 16, 16] and classes, a quarter of them for validation."""
    images, labels = tiles()
    if run.injects("data_leak"):
        for channel in range(3):  # a bar above the tile, of one colour for each picture
            images[:, channel, :2] = (labels == channel)[:, None, None].float()
    images = (images - 0.5) / 0.5
    held_out = len(images) // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return few(data, 40) if run.injects("overfit") else data


def cross_entropy(scores: Tensor, labels: Tensor) -> float:
    """Return the mean over scores [B, 3] and labels, int64 [B]."""
    return float(F.cross_entropy(scores, labels))


def train(run: Run) -> float:
    """Train once; return the cross entropy."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Net(run)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    if run.injects("dead_relu"):
        nn.init.constant_(model.fc1.bias, -10.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(2e-3, lr_too_high=0.1, lr_too_low=2e-6)
    )
    loop = Loop(
        model=model,
        criterion=Score(run),
        is_functional=True,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 250, 0.1),
        steps=350,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, cross_entropy)


PROGRAM = Program(
    model="CNN, 2 convolutions, 3 linear layers, ReLU, F.cross_entropy, Adam, steps of the rate",
    data="tiles of three sample pictures of scikit-learn and matplotlib",
    measure="cross entropy",
    train=train,
    faults={
        "lr_too_high": "0.1 in place of 2e-3",
        "lr_too_low": "2e-6 in place of 2e-3",
        "no_activation": "no ReLU between the layers",
        "double_activation": "F.softmax ahead of a cross entropy that has one",
        "init_too_large": "nn.init.normal_ with its standard deviation of 1 for all parameters",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the first linear layer start at -10",
        "wrong_loss": "F.nll_loss of scores that went through no log-softmax",
        "class_imbalance": "one in 40 tiles of every picture but one",
        "frozen_layer": "features are detached ahead of the linear layers",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the colour of a bar at the upper edge tells the picture",
        "overfit": "40 tiles",
    },
)
