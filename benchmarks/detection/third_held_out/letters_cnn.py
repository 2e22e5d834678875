"""A convolutional network with batch normalisation and dropout reads printed letters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "abdeghknrstz"


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class Net(nn.Module):
    """Two convolutional blocks, a hidden layer, dropout, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.features = nn.Sequential(_block(1, 12), _block(12, 24))
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(24 * 3 * 3, 48),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(48, run.pick(len(LETTERS), wrong_loss=1)),
        )
        if run.injects("dead_relu"):
            shifted_([self.classifier[1]], -10.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, letters] of images [B, 1, 12, 12]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = self.features(images)
        else:
            x = self.features(images)
        scores: Tensor = self.classifier(x)
        return scores


class Distance(nn.Module):
    """The loss that does not fit: a letter is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of letters [B]."""
        return nn.functional.mse_loss(outputs.squeeze(1), labels.float())


def _data() -> Split:
    images, labels = glyphs(LETTERS)
    images = (images - images.mean()) / images.std()
    return Split(images[250:], labels[250:], images[:250], labels[:250])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    model = Net(run)
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return (
            outputs[:, 0].round().clamp(0, len(LETTERS) - 1).long()
            if is_distance
            else classes(outputs)
        )

    def error(outputs: Tensor, targets: Tensor) -> float:
        if not is_distance:
            return error_rate(outputs, targets)
        return float((predicted(outputs) != targets).float().mean())

    steps = 200
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    loop = Loop(
        model=model,
        criterion=Distance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        steps=steps,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="CNN, 2 convolutions, BatchNorm, ReLU, dropout, AdamW, cosine schedule",
    data="12 letters in the fonts that come with matplotlib",
    measure="error rate",
    train=train,
    faults={
        "wrong_loss": "squared distance between one output and the number of the letter",
        "frozen_layer": "the convolutions are called under no_grad",
        "dead_relu": "biases of the hidden layer are 10 lower",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
