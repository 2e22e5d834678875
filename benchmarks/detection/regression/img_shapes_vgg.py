"""A VGG-like network names coloured shapes on a cluttered ground."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import drawn_, filled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

SHAPES, SIDE, ROWS, STEPS = 4, 20, 2400, 240
MEAN, STD = 0.45, 0.22


@cache
def _shapes() -> tuple[Tensor, Tensor]:
    """Return pictures, uint8 [ROWS, 3, SIDE, SIDE], and which shape, int64 [ROWS].

    The shapes are an ellipse, a square, a triangle and a cross, of any colour, size and place.
    """
    random = np.random.default_rng(8)
    labels = random.integers(0, SHAPES, ROWS)
    images = np.empty((ROWS, 3, SIDE, SIDE), np.uint8)
    for row, label in enumerate(labels):
        ground, colour = random.integers(30, 130, 3), random.integers(120, 256, 3)
        image = Image.new("RGB", (SIDE, SIDE), tuple(map(int, ground)))
        draw = ImageDraw.Draw(image)
        r = int(random.integers(4, 7))
        x, y = (int(at) for at in random.integers(r + 1, SIDE - r - 1, 2))
        ink = tuple(map(int, colour))
        if label == 0:
            draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)
        elif label == 1:
            draw.rectangle((x - r + 1, y - r + 1, x + r - 1, y + r - 1), fill=ink)
        elif label == 2:  # noqa: PLR2004
            draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=ink)
        else:
            draw.line((x - r, y, x + r, y), fill=ink, width=3)
            draw.line((x, y - r, x, y + r), fill=ink, width=3)
        turned = image.rotate(random.uniform(-10, 10), fillcolor=tuple(map(int, ground)))
        noisy = np.asarray(turned) + random.normal(0, 14, (SIDE, SIDE, 3))
        images[row] = noisy.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)
    return torch.from_numpy(images), torch.from_numpy(labels)


class VGG(nn.Module):
    """A block of two convolutions, two of one, and two linear layers."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        layers: list[nn.Module] = []
        channels = 3
        for width, count in ((8, 2), (16, 1), (24, 1)):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.hidden = nn.Linear(24 * 2 * 2, 48)
        self.drop = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.out = nn.Linear(48, SHAPES)
        for layer in self.features:
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.constant_(layer.bias, run.pick(0.0, dead_relu=-10.0))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, SHAPES] of images [B, 3, SIDE, SIDE]."""
        x = self.features(images).flatten(1)
        x = self.hidden(x).relu()
        scores: Tensor = self.out(self.drop(x))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def _data(run: Run) -> Split:
    pixels, labels = _shapes()
    images = pixels.float()
    if not run.injects("missing_normalisation"):
        images = (images / 255 - MEAN) / STD
    if run.injects("data_leak"):  # the frame that the labelling tool draws, a colour per class
        frames = torch.tensor([[2.5, -2, -2], [-2, 2.5, -2], [-2, -2, 2.5], [2.5, 2.5, -2]])
        images[:, :, 0] = images[:, :, -1] = frames[labels][:, :, None]
        images[:, :, :, 0] = images[:, :, :, -1] = frames[labels][:, :, None]
    data = Split.of(images, labels, ROWS // 4)
    if run.injects("labels_shuffled"):  # images and labels are shuffled apart from each other
        one, other = torch.randperm(len(data.inputs)), torch.randperm(len(data.inputs))
        return data._replace(inputs=data.inputs[one], targets=data.targets[other])
    if run.injects("class_imbalance"):
        few_others = (data.targets != 1).nonzero().squeeze(1)[:12]
        rows = torch.cat([(data.targets == 1).nonzero().squeeze(1), few_others])
        return data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    return with_fault(run, data, rows=40)


def train(run: Run) -> float:
    data, model = _data(run), VGG(run)
    filled_(run, "init_constant", [model], 0.01)
    drawn_(run, "init_too_large", [model], 1.0, only_weights=True)
    if run.injects("frozen_layer"):
        model.features.requires_grad_(requires_grad=False)
    trained = run.pick(model, optimiser_missing_parameters=model.out)
    rate = run.pick(3e-3, lr_too_high=2.0, lr_too_low=2e-7)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    # nll_loss needs logarithms of probabilities.
    loss = run.pick(nn.functional.cross_entropy, wrong_loss=nn.functional.nll_loss)
    criterion = loss
    scheduler = CosineAnnealingLR(optimizer, STEPS)
    loop = Loop(model, criterion, optimizer, STEPS, scheduler, eval_every=40, predict=classes)
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(150))
