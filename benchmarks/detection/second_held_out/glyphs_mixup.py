"""A residual network with batch normalisation reads letters that are mixed two and two."""

from __future__ import annotations

import string

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, error_rate, fit

LETTERS = string.ascii_uppercase
WIDTH = 24


def _activation(run: Run) -> nn.Module:
    return nn.Identity() if run.injects("no_activation") else nn.ReLU()


class Block(nn.Module):
    """Two convolutions, with what goes in added to what comes out.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(WIDTH)
        self.relu = _activation(run)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is of the same shape as x [B, WIDTH, H, W]."""
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


def mixed(batches: Batches, seed: int) -> Batches:
    """Yield batches whose rows are mixed with others, images and labels [B, LETTERS]."""
    random = torch.Generator().manual_seed(seed)
    for images, labels in batches:
        share = 0.7 + 0.3 * torch.rand(1, generator=random)
        other = torch.randperm(len(labels), generator=random)
        soft = nn.functional.one_hot(labels, len(LETTERS)).float()
        yield (
            share * images + (1 - share) * images[other],
            share * soft + (1 - share) * soft[other],
        )


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    images, labels = glyphs(LETTERS)
    data = Split(images[500:], labels[500:], images[:500], labels[:500])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("overfit"):
        data = few(data, 80)
    model = nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(WIDTH),
        _activation(run),
        Block(run),
        nn.MaxPool2d(2),
        Block(run),
        nn.Flatten(),
        nn.Linear(WIDTH * 3 * 3, len(LETTERS)),
    )
    steps = 240
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=0.1,
        momentum=0.9,
        nesterov=True,
        weight_decay=run.pick(2e-3, overfit=0.0),
    )
    largest = run.pick(0.25, lr_too_high=25.0)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(label_smoothing=run.pick(0.1, overfit=0.0)),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, largest, total_steps=steps),
        steps=steps,
        save_interval=6,
        eval_every=60,
    )
    batches = batches_of(data, 48, run.seed)
    if not run.injects("overfit"):
        batches = mixed(batches, run.seed)
    valid = [
        (data.valid_inputs[rows], data.valid_targets[rows]) for rows in torch.arange(500).split(125)
    ]
    return fit(run, loop, batches, valid, error_rate)


PROGRAM = Program(
    model="residual network, BatchNorm, mixup, label smoothing, SGD, one cycle up to 0.25",
    data="capital letters in matplotlib's fonts",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "one cycle up to 25 in place of 0.25",
        "no_activation": "no activation between the layers",
        "labels_shuffled": "training labels are permuted",
        "overfit": "80 rows for training, no mixup, no label smoothing, no weight decay",
    },
)
