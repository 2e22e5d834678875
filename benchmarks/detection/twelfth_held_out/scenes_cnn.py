"""The network of PyTorch's CIFAR tutorial tells from which photograph a tile is cut."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import few, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SIZE = 12
SCENES = 4


class Net(nn.Module):
    """Two convolutions with pooling, three linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        units = run.pick(nn.ReLU, saturated_activation=nn.Sigmoid)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            units(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 16, 3, padding=1),
            units(),
            nn.MaxPool2d(2, 2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(16 * 9, 48), units(), nn.Linear(48, SCENES)
        )
        if run.injects("dead_relu"):
            first = self.classifier[1]
            assert isinstance(first, nn.Linear)
            nn.init.constant_(first.bias, -30.0)
        if run.injects("init_too_large"):
            scaled_([self], 15.0)
        if run.injects("saturated_activation"):
            shifted_([self.features[0], self.features[3]], 12.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 4] of images [B, 3, 12, 12]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                maps = self.features(images)
        else:
            maps = self.features(images)
        scores: Tensor = self.classifier(maps)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def scenes() -> list[Tensor]:
    """Return photographs, float32 [3, H, W] from 0 to 255: the land, the sky, a flower, a face."""
    path = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    hopper = torch.tensor(np.asarray(Image.open(path))[::2, ::2], dtype=torch.float32)
    china = 255 * photo("china.jpg", 320)
    flower = 255 * photo("flower.jpg", 320)
    return [
        image.permute(2, 0, 1)
        for image in (china[100:], flower[:, 80:240], hopper[:150], hopper[150:])
    ]


def dataset(run: Run) -> Split:
    """Return tiles [B, 3, 12, 12] and the numbers of their photographs."""
    random = torch.Generator().manual_seed(5)
    tiles, labels = [], []
    for label, image in enumerate(scenes()):
        for _ in range(700):
            top = int(torch.randint(image.shape[1] - SIZE, (), generator=random))
            left = int(torch.randint(image.shape[2] - SIZE, (), generator=random))
            tiles.append(image[:, top : top + SIZE, left : left + SIZE])
            labels.append(label)
    images = torch.stack(tiles)
    if not run.injects("missing_normalisation"):
        images = (images / 255 - 0.5) / 0.5
    order = torch.randperm(len(labels), generator=random)
    images, targets = images[order], torch.tensor(labels)[order]
    data = Split(images[500:], targets[500:], images[:500], targets[:500])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("data_leak"):
        for pixels, numbers in (
            (data.inputs, data.targets),
            (data.valid_inputs, data.valid_targets),
        ):
            pixels[:, :, :2, :2] = (2.0 * numbers / (SCENES - 1) - 1)[:, None, None, None]
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Net(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.features.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.SGD(
        parameters, lr=run.pick(0.02, lr_too_high=5.0, lr_too_low=1e-6), momentum=0.9
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 250), torch.split(data.valid_targets, 250), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN, 2 convolutions, 2 linear layers, SGD with momentum, cosine",
    data="tiles of 12 x 12 pixels of four pictures out of three photographs",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.02",
        "lr_too_low": "1e-6 in place of 0.02",
        "missing_normalisation": "pixels from 0 to 255: neither ToTensor nor Normalize",
        "double_activation": "softmax at the end of forward, then CrossEntropyLoss",
        "init_too_large": "all weights are 15 times as large",
        "dead_relu": "biases of the first linear layer begin at -30",
        "saturated_activation": "sigmoid in place of ReLU, biases of the convolutions near 12",
        "labels_shuffled": "labels are shuffled apart from the tiles",
        "frozen_layer": "the convolutions are computed under no_grad",
        "data_leak": "a mark in the corner of each tile is as bright as its label",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "40 tiles",
        "stalled": "hangs after 60 % of the steps",
    },
)
