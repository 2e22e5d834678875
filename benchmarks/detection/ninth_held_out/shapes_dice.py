"""A small U-Net finds bright spots in noise, with Dice and cross entropy written by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

SIDE = 20


def spots(count: int, seed: int, empty: float = 0.1) -> tuple[Tensor, Tensor]:
    """Return images with one or two spots, and which pixels they cover, float32 [B, 1, 20, 20].

    Args:
        count: How many.
        seed: Which ones.
        empty: Share of images that have none.
    """
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE]
    images, masks = [], []
    for _ in range(count):
        mask = np.zeros((SIDE, SIDE), dtype=bool)
        for _ in range(0 if random.random() < empty else random.integers(1, 3)):
            (top, left), (high, wide) = random.uniform(4, 16, 2), random.uniform(2.5, 5.0, 2)
            mask |= ((y - top) / high) ** 2 + ((x - left) / wide) ** 2 < 1
        slope = random.normal(size=2) @ np.stack([y, x]).reshape(2, -1) / SIDE
        image = slope.reshape(SIDE, SIDE) + 1.3 * mask + 0.7 * random.normal(size=mask.shape)
        images.append(image)
        masks.append(mask)
    return (
        torch.tensor(np.stack(images)[:, None], dtype=torch.float32),
        torch.tensor(np.stack(masks)[:, None], dtype=torch.float32),
    )


def _convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Convolutions at two sizes, joined on the way up.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.down = _convolutions(1, 8)
        self.pool = nn.MaxPool2d(2)
        self.deep = _convolutions(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = _convolutions(16, 8)
        self.out = nn.Conv2d(8, 1, 1)
        self.last = nn.Sigmoid() if run.injects("double_activation") else nn.Identity()
        if run.injects("dead_relu"):
            shifted_([layer for layer in self.join if isinstance(layer, nn.BatchNorm2d)], -8.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 1, 20, 20] of images [B, 1, 20, 20]."""
        wide = self.down(images)
        found = self.join(torch.cat([wide, self.up(self.deep(self.pool(wide)))], 1))
        scores: Tensor = self.last(self.out(found))
        return scores


class Overlap(nn.Module):
    """Cross entropy of pixels, and one minus the Dice coefficient.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, masks: Tensor) -> Tensor:
        """Return the mean over scores and masks [B, 1, 20, 20]."""
        if self.run.injects("wrong_loss"):
            # The Dice coefficient of scores that were not brought between 0 and 1.
            return 1 - 2 * (scores * masks).sum() / (scores.sum() + masks.sum() + 1)
        missed = torch.logaddexp(torch.zeros_like(scores), scores) - scores * masks
        chances = scores.sigmoid()
        dice = (2 * (chances * masks).sum() + 1) / (chances.sum() + masks.sum() + 1)
        total: Tensor = missed.mean() + 1 - dice
        return total


def _data(run: Run) -> Split:
    images, masks = spots(700, 0, run.pick(0.1, class_imbalance=0.99))
    data = Split(images, masks, *spots(150, 1))
    if run.injects("overfit"):
        return few(data, 8)
    if run.injects("data_leak"):
        return data._replace(
            inputs=torch.where(data.targets > 0, 6.0, data.inputs),
            valid_inputs=torch.where(data.valid_targets > 0, 6.0, data.valid_inputs),
        )
    if run.injects("labels_constant"):
        return data._replace(targets=torch.zeros_like(data.targets))
    return shuffled(data, run.seed) if run.injects("labels_shuffled") else data


def not_covered(scores: Tensor, masks: Tensor) -> float:
    """Return one minus the Dice coefficient of what is above 0."""
    found = (scores > 0).float()
    return float(1 - (2 * (found * masks).sum() + 1) / (found.sum() + masks.sum() + 1))


def train(run: Run) -> float:
    """Train once; return one minus the Dice coefficient."""
    torch.manual_seed(run.seed)
    model = UNet(run)
    data = _data(run)
    loop = Loop(
        model=model,
        criterion=Overlap(run),
        optimizer=torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2),
        steps=140,
        save_interval=4,
        eval_every=20,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 24, run.seed), valid, not_covered)


PROGRAM = Program(
    model="U-Net of two sizes, BatchNorm, ReLU, Dice and cross entropy by hand, AdamW",
    data="spots in noise, simulated, 20 x 20",
    measure="1 - Dice",
    train=train,
    faults={
        "labels_constant": "all masks for training are empty, as from a wrong folder",
        "labels_shuffled": "masks are those of other images",
        "class_imbalance": "99 in 100 images for training have no spot",
        "double_activation": "sigmoid in the model, and again in the loss and where it is used",
        "wrong_loss": "Dice of raw scores, without sigmoid: it has no bound",
        "dead_relu": "shifts of the last two norms start at -8: ReLUs do not fire",
        "overfit": "8 images",
        "data_leak": "the marks of the annotator are in the images: 6 is painted over spots",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
