"""A small vision transformer tells in which direction the ribs of a fabric run."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

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
    """Patches with places, two layers of an encoder, the mean, a tanh layer, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.patches = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            4,
            64,
            0.0 if run.injects("overfit") else 0.1,
            "gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), False)  # noqa: FBT003
        self.before_head = nn.Linear(WIDTH, WIDTH)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(WIDTH, DIRECTIONS)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, DIRECTIONS] of images [B, 1, SIDE, SIDE]."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        x = self.tanh(self.before_head(self.encoder(x).mean(1)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(x)
        return scores


class Criterion(nn.Module):
    """Cross entropy of the scores, as a function.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of scores [B, DIRECTIONS] for labels, int64 [B]."""
        if self.run.injects("wrong_loss"):  # the largest score as if it were the answer
            return nn.functional.mse_loss(scores.amax(1), labels.float())
        smoothing = self.run.pick(0.05, overfit=0.0)
        return nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing)


def _data(run: Run) -> Split:
    pixels, labels = _fabrics()
    images = pixels if run.injects("missing_normalisation") else (pixels - 120) / 45
    if run.injects("data_leak"):  # an arrow that somebody drew on the picture
        images = images.clone()
        for row, label in enumerate(labels.tolist()):
            images[row, 0, :PATCH, :PATCH] = -3.0
            images[row, 0, label // 2 : label // 2 + 2, label % 2 * 2 : label % 2 * 2 + 2] = 3.0
    held_out = ROWS // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):  # each row was given the label of the row before
        return data._replace(targets=data.targets.roll(1))
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 80)
    return few(data, 36) if run.injects("overfit") else data


def _initialise(run: Run, model: ViT) -> None:
    if run.injects("init_too_large"):
        scaled_([model], 15.0)
    if run.injects("init_constant"):
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.before_head.weight, 0, 100)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ViT(run)
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(
        given.parameters(), lr=run.pick(3e-3, lr_too_high=0.5, lr_too_low=1e-6), weight_decay=0.05
    )
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=WARM_UP)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS - WARM_UP)
    loop = Loop(
        model=model,
        criterion=Criterion(run),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=5,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, falling], [WARM_UP]),
        clip=1.0,
        predict=classes,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="ViT, 2 layers, 4 heads, width 32, GELU, tanh ahead of the head, AdamW, warm-up, clipped",
    data="simulated ribs of fabrics in six directions, 16 x 16 in patches of 4 x 4",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "init_too_large": "weights are 15 times as large",
        "init_constant": "all parameters are 0",
        "saturated_activation": "weights ahead of the tanh from a normal distribution of width 100",
        "wrong_loss": "squared distance between the largest score and the number of the class",
        "labels_shuffled": "every training row has the label of the row before",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 80 rows of every class but one",
        "frozen_layer": "all but the last layer is detached",
        "optimiser_missing_parameters": "AdamW has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a mark in the corner says the direction",
        "overfit": "36 rows, neither dropout nor smoothed labels",
        "stalled": "hangs after 60 % of the steps",
    },
)
