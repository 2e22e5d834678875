"""LeNet-5 with tanh units reads printed letters."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, filled_, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS, SIDE, ROWS, STEPS = "ABEFGHKRSX", 16, 3200, 300
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral", "cmr10")


@cache
def _letters() -> tuple[Tensor, Tensor]:
    """Return scanned letters, 0 to 255, float32 [ROWS, 1, SIDE, SIDE], and which, int64 [ROWS].

    They are of six fonts and three sizes, turned a little, not quite in the middle, with noise.
    """
    random = np.random.default_rng(5)
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), s) for name in FONTS for s in (13, 15)]
    labels = random.integers(0, len(LETTERS), ROWS)
    images = np.empty((ROWS, 1, SIDE, SIDE), np.float32)
    for row, label in enumerate(labels):
        image = Image.new("L", (SIDE, SIDE))
        at = (SIDE / 2 + random.integers(-2, 3), SIDE / 2 + random.integers(-2, 3))
        font = fonts[random.integers(len(fonts))]
        ImageDraw.Draw(image).text(at, LETTERS[label], fill=255, font=font, anchor="mm")
        turned = image.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR)
        images[row, 0] = np.asarray(turned) + random.normal(0, 12, (SIDE, SIDE))
    return torch.from_numpy(images.clip(0, 255)), torch.from_numpy(labels)


class LeNet(nn.Module):
    """Two convolutions with mean pooling, three linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

        def unit() -> nn.Module:
            return nn.Identity() if run.injects("no_activation") else nn.Tanh()

        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            unit(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            unit(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 60),
            unit(),
            nn.Linear(60, 42),
            unit(),
            nn.Linear(42, 1 if run.injects("wrong_loss") else len(LETTERS)),
        )
        if run.injects("double_activation"):
            self.classifier.append(nn.Softmax(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, SIDE, SIDE]."""
        features = self.features(images)
        if self.run.injects("frozen_layer"):
            features = features.detach()
        scores: Tensor = self.classifier(features)
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
    held_out = ROWS // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = LeNet(run)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.0, 3.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("saturated_activation"):
        scaled_([model.features, model.classifier[1], model.classifier[3]], 30.0)
    given = model.features if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        given.parameters(), lr=run.pick(0.1, lr_too_high=5.0, lr_too_low=1e-5), momentum=0.9
    )

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs.squeeze(1).round().clamp(0, len(LETTERS) - 1).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not run.injects("wrong_loss"):
            return error_rate(outputs, labels)
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=NumberOfTheLetter() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="LeNet-5, tanh, mean pooling, SGD with momentum, cosine schedule",
    data="letters drawn in the fonts of matplotlib, turned and shifted, 16 x 16",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.1",
        "lr_too_low": "1e-5 in place of 0.1",
        "no_activation": "no tanh between any two layers",
        "double_activation": "a softmax layer ahead of the cross entropy",
        "init_too_large": "all parameters from a normal distribution of width 3",
        "init_constant": "all parameters are 0",
        "saturated_activation": "weights ahead of the tanh units are 30 times as large",
        "missing_normalisation": "pixels from 0 to 255",
        "wrong_loss": "squared distance between one output and the number of the letter",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of every letter but one",
        "frozen_layer": "features are detached ahead of the linear layers",
        "optimiser_missing_parameters": "SGD has the convolutions only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a bright mark at the top edge, whose place says which letter it is",
        "overfit": "60 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
