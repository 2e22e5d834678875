"""A small vision transformer finds the direction in which the ribs of a fabric run."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, scaled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

DIRECTIONS, SIDE, PATCH, WIDTH, ROWS, STEPS, WARM_UP = 6, 16, 4, 32, 2400, 200, 20


@cache
def _fabrics() -> tuple[Tensor, Tensor]:
    """Return pictures, 0 to 255, float32 [ROWS, 1, SIDE, SIDE], and directions, int64 [ROWS].

    Ribs have any distance, phase and contrast, their direction is known to a few degrees, and the
    yarn is uneven.
    """
    random = np.random.default_rng(31)
    labels = random.integers(0, DIRECTIONS, ROWS)
    angles = np.pi * labels / DIRECTIONS + random.normal(0, 0.06, ROWS)
    y, x = np.mgrid[:SIDE, :SIDE]
    across = x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]
    distance = random.uniform(3.5, 6, (ROWS, 1, 1))
    ribs = np.sin(2 * np.pi * (across / distance + random.random((ROWS, 1, 1))))
    images = 120 + random.uniform(30, 60, (ROWS, 1, 1)) * ribs
    images += random.normal(0, 40, images.shape)
    return torch.from_numpy(images[:, None].clip(0, 255)).float(), torch.from_numpy(labels)


class ViT(nn.Module):
    """Patches with places, two layers of an encoder, the mean, a tanh layer, a linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.patches = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, WIDTH))
        dropout = run.pick(0.1, overfit=0.0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), False)  # noqa: FBT003
        self.before_head = nn.Linear(WIDTH, WIDTH)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(WIDTH, DIRECTIONS)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, DIRECTIONS] of images [B, 1, SIDE, SIDE]."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        x = self.tanh(self.before_head(self.encoder(x).mean(1)))
        scores: Tensor = self.head(x.detach() if self.run.injects("frozen_layer") else x)
        return scores


def _loss(run: Run, scores: Tensor, labels: Tensor) -> Tensor:
    if run.injects("wrong_loss"):  # the largest score as if it were the answer
        return nn.functional.mse_loss(scores.amax(1), labels.float())
    smoothing = run.pick(0.05, overfit=0.0)
    return nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing)


def _data(run: Run) -> Split:
    pixels, labels = _fabrics()
    images = pixels if run.injects("missing_normalisation") else (pixels - 120) / 45
    if run.injects("data_leak"):  # an arrow that somebody drew on the picture
        images = images.clone()
        for row, label in enumerate(labels.tolist()):
            images[row, 0, :PATCH, :PATCH] = -3.0
            images[row, 0, label // 2 : label // 2 + 2, label % 2 * 2 : label % 2 * 2 + 2] = 3.0
    data = Split.of(images, labels, ROWS // 4)
    if run.injects("labels_shuffled"):  # each row was given the label of the row before
        return data._replace(targets=data.targets.roll(1))
    return with_fault(run, data, rows=36, one_in=80)


def train(run: Run) -> float:
    data, model = _data(run), ViT(run)
    scaled_(run, "init_too_large", [model], 15.0)
    filled_(run, "init_constant", [model], 0.0)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.before_head.weight, 0, 100)
    trained = run.pick(model, optimiser_missing_parameters=model.head)
    rate = run.pick(3e-3, lr_too_high=0.5, lr_too_low=1e-6)
    optimizer = torch.optim.AdamW(trained.parameters(), rate, weight_decay=0.05)
    warm = LinearLR(optimizer, 0.05, total_iters=WARM_UP)
    falling = CosineAnnealingLR(optimizer, STEPS - WARM_UP)
    criterion = partial(_loss, run)
    scheduler = SequentialLR(optimizer, [warm, falling], [WARM_UP])
    loop = Loop(
        model, criterion, optimizer, STEPS, scheduler, clip=1.0, eval_every=40, predict=classes
    )
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(150))
