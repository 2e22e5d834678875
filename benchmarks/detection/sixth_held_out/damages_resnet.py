"""A small residual network tells what was done to a photograph, by a piece of it."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_DAMAGES: Final = ("none", "compressed", "blurred", "noisy", "few greys")
_SIDE: Final = 16
_CONTRAST: Final = 25.0


def damaged(photo: Image.Image, kind: str) -> Image.Image:
    """Return the photograph with one of `_DAMAGES`."""
    if kind == "compressed":
        file = io.BytesIO()
        photo.save(file, "JPEG", quality=4)
        return Image.open(file)
    if kind == "blurred":
        return photo.filter(ImageFilter.GaussianBlur(2))
    if kind == "noisy":
        noise = np.random.default_rng(0).normal(0, 18, (photo.height, photo.width))
        return Image.fromarray((np.asarray(photo) + noise).clip(0, 255).astype(np.uint8))
    return ImageOps.posterize(photo, 2) if kind == "few greys" else photo


@cache
def tiles(count: int) -> tuple[Tensor, Tensor]:
    """Return grey tiles, float32 [5 count, 1, 16, 16], and their damages, int64 [5 count]."""
    path = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    photos = [Image.fromarray(datasets.load_sample_image(n)) for n in ("china.jpg", "flower.jpg")]
    photos = [image.convert("L").reduce(2) for image in (*photos, Image.open(path))]
    random = np.random.default_rng(3)
    images, labels = [], []
    for label, kind in enumerate(_DAMAGES):
        for photo in photos:
            pixels = np.asarray(damaged(photo, kind), dtype=np.float32)
            whole = np.asarray(photo, dtype=np.float32)
            found = 0
            while found < count // len(photos):
                top, left = (random.integers(0, side - _SIDE) for side in pixels.shape)
                place = slice(top, top + _SIDE), slice(left, left + _SIDE)
                if whole[place].std() > _CONTRAST:  # the sky is blurred by itself
                    images.append(pixels[place][None])
                    labels.append(label)
                    found += 1
    order = random.permutation(len(labels))
    return torch.tensor(np.stack(images)[order]), torch.tensor(labels)[order]


class Block(nn.Module):
    """Two convolutions around which the input goes.

    Args:
        channels: In and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the size of the input [B, C, H, W]."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(x + self.norm2(self.conv2(y)))


class ResNet(nn.Module):
    """A stem, two residual blocks, the mean over places, and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.block1, self.block2 = Block(16), Block(16)
        self.down = nn.Conv2d(16, 16, 2, stride=2)
        self.head = nn.Linear(16, len(_DAMAGES))
        if run.injects("init_too_large"):
            for layer in (self.stem, self.down, self.head):
                nn.init.normal_(layer.weight, std=20.0)
        if run.injects("dead_relu"):
            shifted_([self.down], -40.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 5] of images [B, 1, 16, 16]."""
        x = self.block1(functional.relu(self.stem(images)))
        x = functional.relu(self.down(x))
        x = self.block2(x)
        if self.run.injects("frozen_layer"):
            x = torch.from_numpy(x.detach().numpy())
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    images, labels = tiles(420)
    if not run.injects("missing_normalisation"):
        images = (images - images.mean((2, 3), keepdim=True)) / 32
    data = Split(images[400:], labels[400:], images[:400], labels[:400])
    if run.injects("labels_constant"):  # a default where the name of the file was not understood
        data = data._replace(targets=torch.full_like(data.targets, 1))
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.flip(0))
    if run.injects("class_imbalance"):
        rows = torch.cat([(data.targets == 0).nonzero()[:, 0], torch.arange(8)])
        data = data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    model = ResNet(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    steps = 260
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=run.pick(0.1, lr_too_high=60.0), total_steps=steps
        ),
        steps=steps,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="residual CNN, BatchNorm, F.relu, SGD with a one-cycle schedule",
    data="tiles of three photographs, damaged in four ways or not",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "the cycle goes up to 60",
        "init_too_large": "stem, downsampling and head drawn with a standard deviation of 20",
        "dead_relu": "the bias of the downsampling starts at -40",
        "frozen_layer": "features go through NumPy ahead of the head",
        "missing_normalisation": "pixels from 0 to 255",
        "labels_shuffled": "the list of labels is read backwards",
        "labels_constant": "all labels are a default",
        "class_imbalance": "all tiles without damage and eight others",
    },
)
