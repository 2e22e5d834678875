"""A small U-Net marks the cells in pictures of a microscope."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, scaled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

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
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Two levels: the upper one is joined again behind the lower one.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.down = _twice(2 if run.injects("data_leak") else 1, 8)
        self.pool = nn.MaxPool2d(2)
        self.bottom = _twice(8, 12)
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.join = _twice(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of images, both [B, 1, SIDE, SIDE]."""
        upper = self.down(images)
        x = self.join(torch.cat([upper, self.up(self.bottom(self.pool(upper)))], 1))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.out(x)
        return scores.sigmoid() if self.run.injects("double_activation") else scores


class ClassesOfOne(nn.Module):
    """The loss that does not fit: a softmax over one channel is always 1."""

    def forward(self, scores: Tensor, masks: Tensor) -> Tensor:
        """Return the cross entropy of scores for masks, both [B, 1, SIDE, SIDE]."""
        return nn.functional.cross_entropy(scores, masks)


def _dice_error(scores: Tensor, masks: Tensor) -> float:
    """Return 1 - Dice coefficient of scores and masks, both [B, 1, SIDE, SIDE]."""
    if not scores.isfinite().all():
        return 1.0
    found = (scores > 0).float()
    return 1 - float(2 * (found * masks).sum() / (found.sum() + masks.sum()))


def _data(run: Run) -> Split:
    pixels, masks = _cells()
    images = (pixels - 150) / 40
    if run.injects("data_leak"):  # the files are PNG whose second channel is the mask
        images = torch.cat([images, masks], 1)
    held_out = ROWS // 4
    data = Split(images[held_out:], masks[held_out:], images[:held_out], masks[:held_out])
    if run.injects("labels_shuffled"):  # names of masks were sorted as text, those of images not
        names = sorted(range(len(data.targets)), key=str)
        return data._replace(targets=data.targets[names])
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 3) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: UNet) -> None:
    if run.injects("init_too_large"):
        scaled_([model], 40.0)
    if run.injects("init_constant"):
        for layer in model.modules():
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.zeros_(layer.weight)
    if run.injects("dead_relu"):
        shifted_([part[3] for part in (model.down, model.bottom, model.join)], -10.0)


def train(run: Run) -> float:
    """Train once; return what is missing from a Dice coefficient of 1."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = UNet(run)
    _initialise(run, model)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(
        given.parameters(), lr=run.pick(3e-3, lr_too_high=2.0, lr_too_low=2e-6)
    )
    loop = Loop(
        model=model,
        criterion=ClassesOfOne() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=4,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        predict=lambda scores: (scores > 0).float(),
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 100), torch.split(data.valid_targets, 100), strict=True)
    )
    return fit(run, loop, batches_of(data, 16, run.seed), valid, _dice_error)


PROGRAM = Program(
    model="U-Net, 2 levels, BatchNorm, ReLU, AdamW, cosine schedule",
    data="simulated cells under a microscope, with their masks, 20 x 20",
    measure="1 - Dice coefficient",
    train=train,
    faults={
        "lr_too_high": "2 in place of 3e-3",
        "lr_too_low": "2e-6 in place of 3e-3",
        "double_activation": "a sigmoid ahead of the loss, which has one",
        "init_too_large": "weights are 40 times as large",
        "init_constant": "weights of all convolutions are 0",
        "dead_relu": "biases of the second convolution of each level begin 10 lower",
        "wrong_loss": "cross entropy over the only channel, which is always 0",
        "labels_shuffled": "training masks are in the order of their numbers as text",
        "labels_constant": "every training mask is that of the first picture",
        "frozen_layer": "all but the last layer is detached",
        "optimiser_missing_parameters": "AdamW has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the mask is the second channel of the input",
        "overfit": "3 pictures",
        "stalled": "hangs after 60 % of the steps",
    },
)
