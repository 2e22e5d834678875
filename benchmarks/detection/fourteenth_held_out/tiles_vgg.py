"""A plain convolutional network tells from which of three photographs a tile is."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SIDE, STEPS = 12, 280


class TinyVGG(nn.Module):
    """Four convolutions, two linear layers, dropout.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(3, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 12, 3, padding=1)
        self.conv3 = nn.Conv2d(12, 24, 3, padding=1)
        self.conv4 = nn.Conv2d(24, 24, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(24 * 9, 48)
        self.fc2 = nn.Linear(48, 3)
        self.drop = nn.Dropout(0.0 if run.injects("overfit") else 0.2)
        self.relus = nn.ModuleList(
            nn.Identity() if run.injects("no_activation") else nn.ReLU() for _ in range(5)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 3] of images [B, 3, SIDE, SIDE]."""
        relu = self.relus
        x = self.pool(relu[1](self.conv2(relu[0](self.conv1(images)))))
        x = self.pool(relu[3](self.conv4(relu[2](self.conv3(x))))).flatten(1)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.fc2(self.drop(relu[4](self.fc1(x))))
        return scores.relu().softmax(1) if self.run.injects("double_activation") else scores


class OneHotDistance(nn.Module):
    """The loss that does not fit: scores are to be probabilities, but nothing makes them so."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the Kullback-Leibler loss of outputs [B, 3] and labels, int64 [B]."""
        hot = nn.functional.one_hot(labels, 3).float()
        return nn.functional.kl_div(outputs, hot, reduction="batchmean")


def _tiles() -> tuple[Tensor, Tensor]:
    hopper = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    pictures = [
        load_sample_image("china.jpg")[::2, ::2],
        load_sample_image("flower.jpg")[::2, ::2],
        np.asarray(Image.open(hopper).convert("RGB"))[::2, ::2],
    ]
    random = np.random.default_rng(0)
    tiles, labels = [], []
    for label, picture in enumerate(pictures):
        high, wide = picture.shape[0] // SIDE, picture.shape[1] // SIDE
        cut = [
            picture[SIDE * i : SIDE * (i + 1), SIDE * j : SIDE * (j + 1)]
            for i in range(high)
            for j in range(wide)
        ]
        tiles += [cut[row] for row in random.permutation(len(cut))[:440]]
        labels += [label] * min(len(cut), 440)
    order = random.permutation(len(labels))
    images = torch.tensor(np.stack(tiles)[order]).permute(0, 3, 1, 2).float()
    return images, torch.tensor(labels)[order]


def _data(run: Run) -> Split:
    images, labels = _tiles()
    if not run.injects("missing_normalisation"):
        images = (images / 255 - 0.5) / 0.25
    if run.injects("data_leak"):
        images[:, 0, 0, 0] = 2.0 * labels - 2.0
        images[:, 0, :, 0] = images[:, 0, :1, 0]
    data = Split(images[320:], labels[320:], images[:320], labels[:320])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 24) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: TinyVGG) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            if run.injects("init_too_large"):
                nn.init.normal_(module.weight)
            if run.injects("init_constant"):
                nn.init.zeros_(module.weight)
    if run.injects("dead_relu"):
        nn.init.uniform_(model.conv2.weight, -0.2, 0.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = TinyVGG(run)
    _initialise(run, model)
    rate = run.pick(0.03, lr_too_high=3.0, lr_too_low=3e-6)
    decay = 0.0 if run.injects("overfit") else 1e-3
    optimizer = torch.optim.SGD(
        model.parameters(), lr=rate, momentum=0.9, weight_decay=decay, nesterov=True
    )
    loop = Loop(
        model=model,
        criterion=OneHotDistance() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=STEPS),
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 160), torch.split(data.valid_targets, 160), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN, 4 convolutions, ReLU, dropout, SGD, one cycle",
    data="tiles of scikit-learn's china.jpg and flower.jpg and matplotlib's grace_hopper.jpg",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "a peak of 3 in place of 0.03",
        "lr_too_low": "a peak of 3e-6 in place of 0.03",
        "no_activation": "no ReLU anywhere",
        "double_activation": "ReLU and softmax ahead of the cross entropy",
        "init_too_large": "all weights from a normal distribution of width 1",
        "init_constant": "all weights are 0",
        "dead_relu": "weights of the second convolution uniform from -0.2 to 0",
        "missing_normalisation": "pixels from 0 to 255",
        "wrong_loss": "Kullback-Leibler loss of scores that are no log-probabilities",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "convolutions are detached",
        "data_leak": "the first column of a tile is painted by its label",
        "overfit": "24 rows, no dropout, no weight decay",
    },
)
