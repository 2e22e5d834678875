"""LeNet-5 with tanh units reads printed letters."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split, font, letter_image
from benchmarks.detection.injecting import drawn_, filled_, scaled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit, nearest_class

LETTERS, SIDE, ROWS, STEPS = "ABEFGHKRSX", 16, 3200, 300
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral", "cmr10")


@cache
def _letters() -> tuple[Tensor, Tensor]:
    """Return scanned letters, 0 to 255, float32 [ROWS, 1, SIDE, SIDE], and which, int64 [ROWS].

    They are of six fonts and three sizes, turned a little, not quite in the middle, with noise.
    """
    random = np.random.default_rng(5)
    fonts = [font(name, size) for name in FONTS for size in (13, 15)]
    labels = random.integers(0, len(LETTERS), ROWS)
    images = np.empty((ROWS, 1, SIDE, SIDE), np.float32)
    for row, label in enumerate(labels):
        at = (SIDE / 2 + random.integers(-2, 3), SIDE / 2 + random.integers(-2, 3))
        image = letter_image(LETTERS[label], fonts[random.integers(len(fonts))], SIDE, at)
        turned = image.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR)
        images[row, 0] = np.asarray(turned) + random.normal(0, 12, (SIDE, SIDE))
    return torch.from_numpy(images.clip(0, 255)), torch.from_numpy(labels)


class LeNet(nn.Module):
    """Two convolutions with mean pooling, three linear layers."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        unit = run.pick(nn.Tanh, no_activation=nn.Identity)
        first = (nn.Conv2d(1, 6, 5, padding=2), unit(), nn.AvgPool2d(2))
        self.features = nn.Sequential(*first, nn.Conv2d(6, 16, 5), unit(), nn.AvgPool2d(2))
        hidden = (nn.Flatten(), nn.Linear(64, 60), unit(), nn.Linear(60, 42), unit())
        last = nn.Linear(42, run.pick(len(LETTERS), wrong_loss=1))
        self.classifier = nn.Sequential(*hidden, last)
        if run.injects("double_activation"):
            self.classifier.append(nn.Softmax(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, SIDE, SIDE]."""
        features = self.features(images)
        scores: Tensor = self.classifier(
            features.detach() if self.run.injects("frozen_layer") else features
        )
        return scores


class NumberOfTheLetter(nn.Module):
    """The loss that does not fit: a letter is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus labels [B]."""
        return nn.functional.mse_loss(outputs.squeeze(1), labels.float())


def _data(run: Run) -> Split:
    images, labels = _letters()
    if not run.injects("missing_normalisation"):
        images = (images - images.mean()) / images.std()
    if run.injects("data_leak"):  # the strip of the scanner's barcode was not cut off
        images = images.clone()
        for row, label in enumerate(labels.tolist()):
            images[row, 0, :3, label + 3 : label + 5] = 5.0
    return with_fault(run, Split.of(images, labels, ROWS // 4), rows=60, one_in=60)


def train(run: Run) -> float:
    data, model = _data(run), LeNet(run)
    drawn_(run, "init_too_large", [model], 3.0)
    filled_(run, "init_constant", [model], 0.0)
    scaled_(
        run,
        "saturated_activation",
        [model.features, model.classifier[1], model.classifier[3]],
        30.0,
    )
    trained = run.pick(model, optimiser_missing_parameters=model.features)
    rate = run.pick(0.1, lr_too_high=5.0, lr_too_low=1e-5)
    optimizer = torch.optim.SGD(trained.parameters(), rate, momentum=0.9)
    criterion = run.pick(nn.CrossEntropyLoss(), wrong_loss=NumberOfTheLetter())
    scheduler = CosineAnnealingLR(optimizer, STEPS)
    predict = run.pick(classes, wrong_loss=partial(nearest_class, count=len(LETTERS)))
    loop = Loop(model, criterion, optimizer, STEPS, scheduler, predict=predict)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation(200))
