"""A prototypical network learns to tell letters apart that it has seen three times each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import glyphs
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, classes, error_rate, fit

LETTERS = "abcdefghijkmnqrtuvwxyzABDEFGHJLMNQRTY23456789"
WAYS, SHOTS, ASKED = 5, 3, 6


def episodes(seed: int, copies: slice, *, letters: int = len(LETTERS)) -> Batches:
    """Yield examples and then queries of five letters, and which letter each query is.

    Args:
        seed: Of the draws.
        copies: Which of the 84 images of each letter are used.
        letters: How many of the letters are used.

    Yields:
        Images, float32 [45, 1, 12, 12], three examples a letter first; numbers, int64 [30].
    """
    images, labels = glyphs(LETTERS)
    random = torch.Generator().manual_seed(seed)
    rows = [(labels == label).nonzero()[:, 0][copies] for label in range(letters)]
    while True:
        shown, asked = [], []
        for label in torch.randperm(len(rows), generator=random)[:WAYS].tolist():
            own = rows[label][torch.randperm(len(rows[label]), generator=random)[: SHOTS + ASKED]]
            shown.append(images[own[:SHOTS]])
            asked.append(images[own[SHOTS:]])
        drawn = torch.cat([torch.cat(shown), torch.cat(asked)])
        yield (drawn - 0.2) / 0.3, torch.arange(WAYS).repeat_interleave(ASKED)


class Net(nn.Module):
    """Two convolutions and a linear layer, and distances to the means of examples."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.GroupNorm(3, 12),
            nn.ELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ELU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.project = nn.Linear(144, 24)

    def forward(self, images: Tensor) -> Tensor:
        """Return minus distances [30, 5] of queries to letters, of images [45, 1, 12, 12]."""
        features = self.embed(images)
        if self.run.injects("frozen_layer"):
            features = features.clone().detach()
        points: Tensor = self.project(features)
        means = points[: WAYS * SHOTS].view(WAYS, SHOTS, -1).mean(1)
        asked = points[WAYS * SHOTS :]
        return -(asked[:, None] - means).square().mean(-1)


class Loss(nn.Module):
    """Cross entropy, as a function."""

    def forward(self, scores: Tensor, numbers: Tensor) -> Tensor:
        """Return the mean over scores [30, 5] and numbers, int64 [30]."""
        return functional.cross_entropy(scores, numbers)


def _misnumbered(batches: Batches, seed: int) -> Batches:
    random = torch.Generator().manual_seed(seed)
    for images, numbers in batches:
        yield images, numbers[torch.randperm(len(numbers), generator=random)]


def train(run: Run) -> float:
    """Train once; return the error rate with images that were not trained on."""
    torch.manual_seed(run.seed)
    model = Net(run)
    if run.injects("init_constant"):
        for layer in (*model.embed, model.project):
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.constant_(layer.weight, 0.02)
    batches = episodes(run.seed, slice(0, 60))
    if run.injects("overfit"):
        batches = episodes(run.seed, slice(0, SHOTS + ASKED), letters=WAYS)
    if run.injects("labels_shuffled"):
        batches = _misnumbered(batches, run.seed)
    loop = Loop(
        model=model,
        criterion=Loss(),
        optimizer=torch.optim.Adam(
            model.parameters(), lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=2e-6)
        ),
        steps=240,
        eval_every=40,
        predict=classes,
        is_functional=True,
    )
    tests = episodes(1234, slice(60, 84))
    return fit(run, loop, batches, [next(tests) for _ in range(12)], error_rate)


PROGRAM = Program(
    model="Prototypical network: CNN with GroupNorm and ELU, distances to means, Adam",
    data="letters in fonts, five at a time; validation has other images",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "learning rate 1 instead of 2e-3, 500 times too high",
        "labels_shuffled": "the numbers of queries are put into another order than the queries",
        "init_constant": "all weights begin at 0.02, so that all channels are alike",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "nine images each of five letters for training",
        "lr_too_low": "learning rate 2e-6 instead of 2e-3, 1,000 times too low",
        "frozen_layer": "the features are detached: only the last linear layer learns",
    },
)
