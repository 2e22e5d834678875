"""A convolutional network tells by how many quarter turns a handwritten digit was turned.

Faults:
    lr_too_high: 0.5 in place of 4e-3.
    dead_relu: biases are set to -10, which was meant for the last layer.
    labels_constant: a loop's variable is read when the loop is over: every label is the last turn.
    class_imbalance: pictures are turned with the small probability of an augmentation.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
"""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

TURNS = 4
HELD_OUT = 400


class CrossEntropy(nn.Module):
    """The function, as it is called in the loop."""

    def forward(self, scores: Tensor, turns: Tensor) -> Tensor:
        """Return the mean over scores [B, TURNS] and numbers of turns, int64 [B]."""
        return functional.cross_entropy(scores, turns)


def _model(run: Run) -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, TURNS),
    )
    for parameter in model.parameters():
        if run.injects("dead_relu") and parameter.dim() == 1:
            nn.init.constant_(parameter, -10.0)
    return model


def _turned(images: Tensor) -> tuple[Tensor, Tensor]:
    inputs = [images.rot90(turns, (2, 3)) for turns in range(TURNS)]
    targets = [torch.full((len(images),), turns) for turns in range(TURNS)]
    return torch.cat(inputs), torch.cat(targets)


@cache
def _digits() -> Split:
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16 - 0.5
    return Split(*_turned(images[HELD_OUT:]), *_turned(images[:HELD_OUT]))


def _data(run: Run) -> Split:
    data = _digits()
    if run.injects("labels_constant"):
        return data._replace(
            targets=torch.full_like(data.targets, TURNS - 1),
            valid_targets=torch.full_like(data.valid_targets, TURNS - 1),
        )
    return imbalanced(data, 100) if run.injects("class_imbalance") else data


def _error(outputs: Tensor, _: Tensor) -> float:
    return error_rate(outputs, _digits().valid_targets)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run)
    loop = Loop(
        model=model,
        criterion=CrossEntropy(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(4e-3, lr_too_high=0.5)),
        steps=300,
        save_interval=6,
        eval_every=60,
        predict=classes,
        is_functional=True,
    )
    pieces = (data.valid_inputs.chunk(TURNS), data.valid_targets.chunk(TURNS))
    valid = list(zip(*pieces, strict=True))
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="CNN, 2 convolutions and 2 linear layers, ReLU, max pooling, dropout, Adam",
    data="scikit-learn digits, each turned by 0, 90, 180 and 270 degrees",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 4e-3",
        "dead_relu": "all biases are -10",
        "labels_constant": "all labels are 3, those for validation, too",
        "class_imbalance": "one in 100 of the digits that are turned",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
