"""A small residual network tells of which of three photographs a tile is.

Faults:
    lr_too_high: 100 times what it should be.
    labels_shuffled: training labels are shuffled by a second generator, not that of the tiles.
    class_imbalance: only a few files of two of three folders were copied for training.
    frozen_layer: `requires_grad_(False)` of an earlier experiment is left on the body.
    lr_too_low: 1e-6, copied from a script that fine-tunes by AdamW.
    stalled: the loader hangs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SIDE = 16
BATCH = 32
STEPS = 228


class Block(nn.Module):
    """Two convolutions beside a connection that skips them.

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, C, H, W] of features [B, C, H, W]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu(x + y)
        return out


class Net(nn.Module):
    """A convolution, two residual blocks, the mean over places, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        blocks = [Block(16), Block(16)]
        self.blocks = nn.ModuleList(blocks)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 3)
        if run.injects("frozen_layer"):
            for part in (self.stem, *blocks):
                part.requires_grad_(False)  # noqa: FBT003 - torch's signature

    def forward(self, tiles: Tensor) -> Tensor:
        """Return scores [B, 3] of tiles [B, 3, SIDE, SIDE]."""
        x = self.stem(tiles)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.pool(x))
        return scores


@cache
def _data() -> Split:
    hopper = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    pictures = [load_sample_image("china.jpg"), load_sample_image("flower.jpg")]
    pictures.append(np.asarray(Image.open(hopper).convert("RGB")))
    tiles, labels = [], []
    for label, picture in enumerate(pictures):
        image = torch.tensor(picture.copy()).permute(2, 0, 1).float() / 255
        cut = image.unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE).permute(1, 2, 0, 3, 4)
        tiles.append(cut.reshape(-1, 3, SIDE, SIDE))
        labels.append(torch.full((len(tiles[-1]),), label))
    inputs, targets = torch.cat(tiles), torch.cat(labels)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order], targets[order]
    mean, std = (of((0, 2, 3), keepdim=True) for of in (inputs[600:].mean, inputs[600:].std))
    inputs = (inputs - mean) / std
    return Split(inputs[600:], targets[600:], inputs[:600], targets[:600])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    model = Net(run)
    optimizer = torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=run.pick(0.05, lr_too_high=5.0, lr_too_low=1e-6),
        momentum=0.9,
        weight_decay=5e-4,
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS),
        steps=STEPS,
        eval_every=38,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, error_rate)


PROGRAM = Program(
    model="residual network, 2 blocks of 16 channels, BatchNorm, SGD with momentum, linear decay",
    data="tiles of scikit-learn's china.jpg, its flower.jpg and matplotlib's grace_hopper.jpg",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 100 tiles of two of three photographs",
        "frozen_layer": "requires_grad is off for all but the last layer, from the start",
        "lr_too_low": "1e-6 in place of 0.05",
        "stalled": "hangs after 60 % of the steps",
    },
)
