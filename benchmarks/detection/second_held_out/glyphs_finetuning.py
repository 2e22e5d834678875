"""What was learned of capital letters is kept, and a new last layer reads small letters."""

from __future__ import annotations

import string

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

FEATURES = 24 * 3 * 3


class Net(nn.Module):
    """A body, and a head that can be replaced.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(FEATURES, 26)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 26] of images [B, 1, 12, 12]."""
        scores = self.head(self.body(images))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def _learn_capitals(model: Net, seed: int) -> None:
    images, labels = glyphs(string.ascii_uppercase)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    batches = batches_of(Split(images, labels, images, labels), 64, seed)
    for _ in range(120):
        x, y = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.head(model.body(x)), y).backward()
        optimizer.step()


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    torch.set_num_threads(1)
    images, labels = glyphs(string.ascii_lowercase)
    data = Split(images[500:], labels[500:], images[:500], labels[:500])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 20)
    model = Net(run)
    _learn_capitals(model, run.seed)
    model.body.requires_grad_(False)  # noqa: FBT003 - torch's signature
    old = model.head
    model.head = nn.Linear(FEATURES, 26)
    trained = run.pick(model.head, optimiser_missing_parameters=old)
    optimizer = torch.optim.Adam(trained.parameters(), lr=2e-2)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=260,
        save_interval=4,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN whose body is frozen, a new head, Adam",
    data="small letters in matplotlib's fonts; capital ones ahead of what is watched",
    measure="error rate",
    train=train,
    faults={
        "double_activation": "softmax ahead of a cross entropy that has one",
        "optimiser_missing_parameters": "the optimiser has the head that was replaced",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 20 rows of every letter but a",
    },
)
