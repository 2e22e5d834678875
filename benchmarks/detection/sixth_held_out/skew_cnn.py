"""A convolutional network measures by how much a scanned text is turned."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, docs_text
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_SIDE: Final = 24
_LARGEST: Final = 25.0
"""The largest angle, degrees."""


@cache
def scans(count: int) -> tuple[Tensor, Tensor]:
    """Return turned text, float32 [count, 1, 24, 24] from 0 to 255, and degrees [count, 1]."""
    font = ImageFont.truetype(
        str(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSerif.ttf"), 7
    )
    words = " ".join(docs_text().values()).split()
    random = np.random.default_rng(11)
    images, angles = [], random.uniform(-_LARGEST, _LARGEST, count)
    for number, angle in enumerate(angles):
        page = Image.new("L", (64, 64))
        for line in range(7):
            start = (number * 37 + line * 5) % (len(words) - 8)
            at = (int(random.integers(-6, 1)), 9 * line + number % 5)
            ImageDraw.Draw(page).text(at, " ".join(words[start : start + 8]), fill=255, font=font)
        page = page.rotate(angle, Image.Resampling.BILINEAR)
        images.append(np.asarray(page.crop((20, 20, 44, 44)), dtype=np.float32)[None])
    return torch.tensor(np.stack(images)), torch.tensor(angles[:, None], dtype=torch.float32)


def prepared(run: Run) -> Split:
    """Return the data as the run gets it: pixels around zero, angles from -1 to 1."""
    images, angles = scans(1600)
    images, angles = images / 128 - 0.5, angles / _LARGEST
    data = Split(images[400:], angles[400:], images[:400], angles[:400])
    if run.injects("labels_shuffled"):  # pages from one loader, angles from another: both shuffle
        random = torch.Generator().manual_seed(run.seed + 7)
        order = torch.randperm(len(data.inputs), generator=random)
        data = data._replace(inputs=data.inputs[order])
    return data


class Net(nn.Module):
    """Three convolutions and two linear layers, with functions for what has no weights.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 12, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(24, 24, 3, padding=1)
        self.fc1 = nn.Linear(24 * 36, 48)
        self.fc2 = nn.Linear(48, 1)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.01)
        if run.injects("dead_relu"):
            shifted_([self.conv3], -9.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return angles [B, 1] of images [B, 1, 24, 24]."""
        if self.run.injects("no_activation"):
            x = self.conv3(self.conv2(self.conv1(images)))
            linear: Tensor = self.fc2(self.fc1(x.flatten(1)))
            return linear
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            x = functional.relu(self.conv1(images))
            x = functional.relu(self.conv2(x))
            x = functional.relu(self.conv3(x))
        angles: Tensor = self.fc2(functional.relu(self.fc1(x.flatten(1))))
        return angles


def train(run: Run) -> float:
    """Train once; return the share of the variance of angles that is not explained."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss() if run.injects("wrong_loss") else nn.SmoothL1Loss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        steps=300,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 48, run.seed), valid, unexplained)


PROGRAM = Program(
    model="CNN, 3 convolutions, F.relu, AdamW, smooth L1 by a function",
    data="pages of Python's help, printed with DejaVu Serif and turned",
    measure="1 - R2 of the angle",
    train=train,
    faults={
        "wrong_loss": "binary cross entropy, though angles go from -1 to 1",
        "no_activation": "F.relu was forgotten everywhere",
        "init_constant": "every parameter is 0.01",
        "dead_relu": "biases of the last convolution start at -9",
        "labels_shuffled": "images and angles come from two loaders that both shuffle",
        "frozen_layer": "the convolutions run under no_grad",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
