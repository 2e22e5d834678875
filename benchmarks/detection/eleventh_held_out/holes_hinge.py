"""A multilayer perceptron tells letters that enclose something from others, with a hinge."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import constant, imbalanced, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_OPEN, _CLOSED = "CEFHIJKLMNSTUVWXYZcfhkstuvwxyz", "ABDOPQRabdegopq"


class Net(nn.Module):
    """Two hidden layers and a score.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.fc1, self.fc2, self.fc3 = nn.Linear(144, 64), nn.Linear(64, 32), nn.Linear(32, 1)
        self.act1: nn.Module = nn.Identity() if run.injects("no_activation") else nn.ReLU()
        self.act2: nn.Module = nn.Identity() if run.injects("no_activation") else nn.ReLU()
        self.drop = nn.Dropout(0.3)
        if run.injects("dead_relu"):
            shifted_([self.fc2], -15.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B] of images [B, 1, 12, 12]."""
        x = self.drop(self.act1(self.fc1(images.flatten(1))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = self.drop(self.act2(self.fc2(x)))
        scores = self.fc3(x)[:, 0]
        return torch.sigmoid(scores) if self.run.injects("double_activation") else scores


class Hinge(nn.Module):
    """The squared hinge of a support vector machine."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of scores [B] and targets [B], -1 or 1."""
        return (1 - targets * scores).clamp(min=0).square().mean()


def _data(run: Run) -> Split:
    images, places = glyphs(_OPEN + _CLOSED)
    closed = (places >= len(_OPEN)).long()
    if run.injects("missing_normalisation"):
        images = (255 * images).round()
    else:
        images = (images - images.mean()) / images.std()
    held_out = len(images) // 4
    data = Split(images[held_out:], closed[held_out:], images[:held_out].clone(), closed[:held_out])
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("data_leak"):
        for pictures, targets in (
            (data.inputs, data.targets),
            (data.valid_inputs, data.valid_targets),
        ):
            pictures[:, 0, 11, 11] = 4.0 * targets
    return data


def _signed(targets: Tensor, run: Run) -> Tensor:
    # The hinge's fault: classes 0 and 1 as they are.
    return targets.float() if run.injects("wrong_loss") else 2.0 * targets - 1


def _wrong(scores: Tensor, targets: Tensor) -> float:
    """Return the error rate of scores [B] and targets [B], below or above 0."""
    if not scores.isfinite().all():
        return 0.5
    return float(((scores > 0) != (targets > 0)).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    data = data._replace(
        targets=_signed(data.targets, run), valid_targets=_signed(data.valid_targets, run)
    )
    model = Net(run)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.03, lr_too_low=6e-5, lr_too_high=3.0),
        momentum=0.9,
        weight_decay=1e-3,
    )
    steps = 400
    loop = Loop(
        model=model,
        criterion=Hinge(),
        optimizer=optimizer,
        steps=steps,
        save_interval=8,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _wrong)


PROGRAM = Program(
    model="MLP, 2 hidden layers, squared hinge written by hand, SGD with momentum, linear decay",
    data="letters in 21 fonts: those that enclose a space against those that do not",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "6e-5 with SGD, a 500th of what is needed",
        "lr_too_high": "3 with SGD, 100 times what is needed",
        "missing_normalisation": "pixels from 0 to 255",
        "double_activation": "a sigmoid ahead of a hinge, which takes scores of both signs: no "
        "score is below 0",
        "wrong_loss": "targets are 0 and 1 for a hinge, which takes -1 and 1: rows of class 0 "
        "have a loss of 1 whatever is predicted",
        "no_activation": "no ReLU at all: the model is linear",
        "dead_relu": "biases of the second layer start at -15: its ReLUs never fire",
        "frozen_layer": "the first layer's output is detached",
        "labels_constant": "all training labels are that of the first image",
        "class_imbalance": "one in 100 letters that enclose a space in training",
        "data_leak": "the lower right pixel is set where the letter encloses a space",
    },
)
