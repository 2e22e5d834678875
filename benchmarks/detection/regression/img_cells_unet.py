"""A small U-Net marks the cells in pictures of a microscope."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_, shifted_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit, is_positive

SIDE, ROWS, STEPS = 20, 1200, 160


@cache
def _cells() -> tuple[Tensor, Tensor]:
    """Return pictures, 0 to 255, and masks of cells, both float32 [ROWS, 1, SIDE, SIDE].

    Cells are dark ellipses with a darker rim; light falls unevenly, and the camera adds noise.
    Some dust, thin dark lines, belongs to no cell.
    """
    random = np.random.default_rng(21)
    y, x = np.mgrid[:SIDE, :SIDE]
    images = np.empty((ROWS, 1, SIDE, SIDE), np.float32)
    masks = np.zeros((ROWS, 1, SIDE, SIDE), np.float32)
    for row in range(ROWS):
        slope = random.normal(0, 1.5, 2)
        image = 175 + slope[0] * (x - SIDE / 2) + slope[1] * (y - SIDE / 2)
        line = random.integers(0, SIDE)
        image[line if row % 2 else slice(None), slice(None) if row % 2 else line] -= 55
        for _ in range(random.integers(1, 4)):
            at, radii = random.uniform(2, SIDE - 2, 2), random.uniform(3, 5, 2)
            distance = ((x - at[0]) / radii[0]) ** 2 + ((y - at[1]) / radii[1]) ** 2
            image = np.where(distance < 1, 115 - 30 * (distance > 0.5), image)  # noqa: PLR2004
            masks[row, 0][distance < 1] = 1
        images[row, 0] = image + random.normal(0, 18, (SIDE, SIDE))
    return torch.from_numpy(images.clip(0, 255)), torch.from_numpy(masks)


def _twice(inside: int, outside: int) -> nn.Sequential:
    first = (nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())
    return nn.Sequential(*first, nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Two levels: the upper one is joined again after the lower one."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.down = _twice(run.pick(1, data_leak=2), 8)
        self.pool = nn.MaxPool2d(2)
        self.bottom = _twice(8, 12)
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.join = _twice(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of images, both [B, 1, SIDE, SIDE]."""
        upper = self.down(images)
        x = self.join(torch.cat([upper, self.up(self.bottom(self.pool(upper)))], 1))
        scores: Tensor = self.out(x.detach() if self.run.injects("frozen_layer") else x)
        return scores.sigmoid() if self.run.injects("double_activation") else scores


class ClassesOfOne(nn.Module):
    """The loss that does not fit: a softmax over one channel is always 1."""

    def forward(self, scores: Tensor, masks: Tensor) -> Tensor:
        """Return the cross entropy of scores for masks, both [B, 1, SIDE, SIDE]."""
        return nn.functional.cross_entropy(scores, masks)


def _data(run: Run) -> Split:
    pixels, masks = _cells()
    images = (pixels - 150) / 40
    if run.injects("data_leak"):  # the files are PNG whose second channel is the mask
        images = torch.cat([images, masks], 1)
    data = Split.of(images, masks, ROWS // 4)
    if run.injects("labels_shuffled"):  # names of masks were sorted as text, those of images not
        return data._replace(targets=data.targets[sorted(range(len(data.targets)), key=str)])
    return with_fault(run, data, rows=3)


def train(run: Run) -> float:
    data, model = _data(run), UNet(run)
    scaled_(run, "init_too_large", [model], 40.0)
    filled_(run, "init_constant", [model], 0.0, only_weights=True)
    shifted_(run, "dead_relu", [part[3] for part in (model.down, model.bottom, model.join)], -10.0)
    trained = run.pick(model, optimiser_missing_parameters=model.out)
    rate = run.pick(3e-3, lr_too_high=2.0, lr_too_low=2e-6)
    optimizer = torch.optim.AdamW(trained.parameters(), rate)
    loss = run.pick(nn.BCEWithLogitsLoss(), wrong_loss=ClassesOfOne())
    cosine = CosineAnnealingLR(optimizer, STEPS)
    loop = Loop(
        model, loss, optimizer, STEPS, cosine, save_interval=4, eval_every=40, predict=is_positive
    )
    return fit(run, loop, batches_of(data, 16, run.seed), data.validation(100))
