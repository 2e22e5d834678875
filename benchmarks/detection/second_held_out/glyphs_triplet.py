"""A convolutional network puts images of the same letter near to each other: a triplet loss."""

from __future__ import annotations

import string

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import filled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit


class Triplets(nn.Module):
    """The triplet loss over all triplets of a batch that are not far enough apart.

    Args:
        is_swapped: Whether the other letter is taken for the same one, and the same for the other.
    """

    def __init__(self, *, is_swapped: bool) -> None:
        super().__init__()
        self.is_swapped = is_swapped

    def forward(self, points: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over points [B, D] and labels, int64 [B]."""
        apart = (points[:, None] - points).square().sum(2).add(1e-9).sqrt()
        same = labels[:, None] == labels
        is_pair = same & ~torch.eye(len(labels), dtype=torch.bool)
        loss = (apart[:, :, None] - apart[:, None, :]) * (-1 if self.is_swapped else 1) + 0.5
        loss = loss[is_pair[:, :, None] & ~same[:, None, :]].relu()
        return loss.sum() / (loss > 0).sum().clamp(min=1)


def misplaced(points: Tensor, labels: Tensor) -> float:
    """Return the share of points whose nearest other point is of another letter."""
    if not points.isfinite().all():
        return 1.0
    apart = torch.cdist(points, points).fill_diagonal_(torch.inf)
    return float((labels[apart.argmin(1)] != labels).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of images whose nearest one is of another letter."""
    torch.manual_seed(run.seed)
    images, labels = glyphs(string.ascii_uppercase)
    data = Split(images[500:], labels[500:], images[:500], labels[:500])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 6 * 6, 32),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model[2]], -15.0)
    loop = Loop(
        model=model,
        criterion=Triplets(is_swapped=run.injects("wrong_loss")),
        optimizer=torch.optim.Adam(model.parameters(), lr=3e-3),
        steps=250,
        save_interval=5,
    )
    valid = [
        (data.valid_inputs[rows], data.valid_targets[rows]) for rows in torch.arange(500).split(50)
    ]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, misplaced)


PROGRAM = Program(
    model="CNN, 2 convolutions, ReLU, triplet loss, Adam",
    data="capital letters in matplotlib's fonts",
    measure="share of images whose nearest one is of another letter",
    train=train,
    faults={
        "wrong_loss": "positives and negatives are swapped",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the second convolution are 15 lower",
        "labels_shuffled": "training labels are permuted",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
