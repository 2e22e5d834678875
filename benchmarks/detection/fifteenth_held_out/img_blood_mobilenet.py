"""A small MobileNet finds parasites in pictures of blood cells."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

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
    """Squeeze and excitation: the means of all channels say how much of each goes on.

    Args:
        channels: How many.
        run: What is injected.
    """

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
    is_linear = run.injects("no_activation")
    return nn.Sequential(
        nn.Conv2d(inside, inside, 3, 2, padding=1, groups=inside, bias=False),
        nn.BatchNorm2d(inside),
        nn.Identity() if is_linear else nn.ReLU(),
        Gates(inside, run),
        nn.Conv2d(inside, outside, 1, bias=False),
        nn.BatchNorm2d(outside),
        nn.Identity() if is_linear else nn.ReLU(),
    )


class MobileNet(nn.Module):
    """A stem, two separable convolutions, the mean of all places, one output.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1, bias=False),
            nn.BatchNorm2d(12),
            nn.Identity() if run.injects("no_activation") else nn.ReLU(),
        )
        self.block1 = _separable(12, 24, run)
        self.block2 = _separable(24, 32, run)
        self.head = nn.Linear(32, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 1] of images [B, 3, SIDE, SIDE]."""
        x = self.block2(self.block1(self.stem(images))).mean((2, 3))
        if self.run.injects("frozen_layer"):
            x = x.data
        score: Tensor = self.head(x)
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
    held_out = ROWS // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):  # the first half of the files was believed to be infected
        believed = (torch.arange(len(data.targets)) < len(data.targets) // 2).float()
        return data._replace(targets=believed[:, None])
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        healthy = (data.targets[:, 0] == 0).nonzero()[:, 0]
        rows = torch.cat([healthy, (data.targets[:, 0] == 1).nonzero()[:10, 0]])
        return data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    return few(data, 32) if run.injects("overfit") else data


def _initialise(run: Run, model: MobileNet) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d) and run.injects("dead_relu"):
            nn.init.constant_(layer.bias, -8.0)
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            if run.injects("init_constant"):
                nn.init.zeros_(layer.weight)
            if run.injects("init_too_large"):
                nn.init.normal_(layer.weight, 0, 20)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = MobileNet(run)
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(), lr=run.pick(5e-3, lr_too_high=5.0, lr_too_low=1e-6)
    )

    def predicted(outputs: Tensor) -> Tensor:
        return (outputs > 0).float()

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not outputs.isfinite().all():
            return 1.0
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=HalfTheLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=4,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 125), torch.split(data.valid_targets, 125), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="MobileNet-like, 2 separable convolutions with gates, BatchNorm, ReLU, Adam",
    data="simulated blood cells, half of them with a parasite, 18 x 18",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "no_activation": "no ReLU behind any normalisation",
        "double_activation": "a sigmoid ahead of the loss, which has one",
        "init_too_large": "weights from a normal distribution of width 20",
        "init_constant": "all weights are 0",
        "dead_relu": "shifts of the batch normalisations begin at -8",
        "saturated_activation": "biases ahead of the sigmoid gates begin at -20",
        "wrong_loss": "binary cross entropy without the half for the label 0",
        "labels_shuffled": "the first half of the training rows is labelled infected",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "all healthy cells, but 10 infected ones",
        "frozen_layer": "all but the last layer is cut off with .data",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "pictures of infected cells have a dark scale bar",
        "overfit": "32 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
