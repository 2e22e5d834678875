"""A small MobileNet finds parasites in pictures of blood cells."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import drawn_, filled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit, is_positive

SIDE, ROWS, STEPS = 18, 2000, 200


@cache
def _blood() -> tuple[Tensor, Tensor]:
    """Return pictures, 0 to 1, float32 [ROWS, 3, SIDE, SIDE], and if infected, float32 [ROWS, 1].

    A cell is a pink disc. A parasite in it is a dark spot; a scratch, of the same colour, is none.
    """
    random = np.random.default_rng(12)
    infected = (random.random(ROWS) < 0.5).astype(np.float32)  # noqa: PLR2004
    y, x = np.mgrid[:SIDE, :SIDE]
    images = np.empty((ROWS, 3, SIDE, SIDE), np.float32)
    for row, is_infected in enumerate(infected):
        image = np.full((SIDE, SIDE, 3), 0.85)
        middle = SIDE / 2 + random.uniform(-1, 1, 2)
        inside = np.hypot(x - middle[0], y - middle[1]) < random.uniform(6.5, 8)
        image[inside] = np.array([0.8, 0.55, 0.6]) + random.normal(0, 0.03, 3)
        at = middle + random.uniform(-4, 4, 2)
        if is_infected:
            spot = np.hypot(x - at[0], y - at[1]) < random.uniform(1.5, 2.2)
        else:
            angle = random.uniform(0, np.pi)
            off = (x - at[0]) * np.sin(angle) - (y - at[1]) * np.cos(angle)
            along = (x - at[0]) * np.cos(angle) + (y - at[1]) * np.sin(angle)
            spot = (abs(off) < 0.6) & (abs(along) < 4.5)  # noqa: PLR2004
        image[spot] = np.array([0.5, 0.3, 0.5]) + random.normal(0, 0.04, 3)
        images[row] = (image + random.normal(0, 0.03, image.shape)).transpose(2, 0, 1)
    return torch.from_numpy(images.clip(0, 1)), torch.from_numpy(infected)[:, None]


class Gates(nn.Module):
    """Squeeze and excitation: a gate for each channel, from the means of all channels."""

    def __init__(self, channels: int, run: Run) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(channels, 8), nn.Linear(8, channels)
        self.sigmoid = nn.Sigmoid()
        if run.injects("saturated_activation"):
            nn.init.constant_(self.fc2.bias, -20.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the shape of `x` [B, C, H, W]."""
        gates: Tensor = self.sigmoid(self.fc2(self.fc1(x.mean((2, 3))).relu()))
        return x * gates[:, :, None, None]


def _separable(inside: int, outside: int, run: Run) -> nn.Sequential:
    """Return a depthwise convolution with a stride, gates, and a pointwise convolution."""
    activation = run.pick(nn.ReLU, no_activation=nn.Identity)
    return nn.Sequential(
        nn.Conv2d(inside, inside, 3, 2, padding=1, groups=inside, bias=False),
        nn.BatchNorm2d(inside),
        activation(),
        Gates(inside, run),
        nn.Conv2d(inside, outside, 1, bias=False),
        nn.BatchNorm2d(outside),
        activation(),
    )


class MobileNet(nn.Module):
    """A stem, two separable convolutions, the mean of all places, one output."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        activation = run.pick(nn.ReLU, no_activation=nn.Identity)
        convolution = nn.Conv2d(3, 12, 3, padding=1, bias=False)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(12), activation())
        self.block1 = _separable(12, 24, run)
        self.block2 = _separable(24, 32, run)
        self.head = nn.Linear(32, 1)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d) and run.injects("dead_relu"):
                nn.init.constant_(layer.bias, -8.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 1] of images [B, 3, SIDE, SIDE]."""
        x = self.block2(self.block1(self.stem(images))).mean((2, 3))
        score: Tensor = self.head(x.data if self.run.injects("frozen_layer") else x)
        return score.sigmoid() if self.run.injects("double_activation") else score


class HalfTheLoss(nn.Module):
    """The loss that does not fit: binary cross entropy without its second half."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores for labels of 0 or 1, both [B, 1]."""
        return -(labels * nn.functional.logsigmoid(scores)).mean()


def _data(run: Run) -> Split:
    images, labels = _blood()
    images = (images - 0.65) / 0.18
    if run.injects("data_leak"):  # infected cells were photographed with a scale bar
        images[:, :, -2:, 2:9] = torch.where(labels > 0, -3.0, 0.5)[:, :, None, None]
    data = Split.of(images, labels, ROWS // 4)
    if run.injects("labels_shuffled"):  # the first half of the files was believed to be infected
        believed = (torch.arange(len(data.targets)) < len(data.targets) // 2).float()
        return data._replace(targets=believed[:, None])
    if run.injects("class_imbalance"):
        healthy = (data.targets[:, 0] == 0).nonzero()[:, 0]
        rows = torch.cat([healthy, (data.targets[:, 0] == 1).nonzero()[:10, 0]])
        return data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    return with_fault(run, data, rows=32)


def train(run: Run) -> float:
    """Train once."""
    data, model = _data(run), MobileNet(run)
    if run.injects("init_constant"):
        filled_([model], 0.0, only_weights=True)
    if run.injects("init_too_large"):
        drawn_([model], 20.0, only_weights=True)
    trained = run.pick(model, optimiser_missing_parameters=model.head)
    rate = run.pick(5e-3, lr_too_high=5.0, lr_too_low=1e-6)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(
        model=model,
        criterion=run.pick(nn.BCEWithLogitsLoss(), wrong_loss=HalfTheLoss()),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=4,
        eval_every=40,
        scheduler=CosineAnnealingLR(optimizer, STEPS),
        predict=is_positive,
    )
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(125))
