"""A small residual network reads letters of many fonts."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import drawn_, filled_, grad_unless_frozen, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit, nearest_class

LETTERS, STEPS = "abdefghkmnrstuwxyz23456789", 250


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, run: Run) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, 2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        activation = run.pick(nn.ReLU, no_activation=nn.Identity)
        self.relu1, self.relu2 = activation(), activation()
        self.shortcut = nn.Conv2d(inside, outside, 1, 2, bias=False)
        if run.injects("dead_relu"):
            nn.init.constant_(self.bn2.bias, -40.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, outside, H / 2, W / 2] of [B, inside, H, W]."""
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        added: Tensor = self.relu2(y + self.shortcut(x))
        return added


class ResNet(nn.Module):
    """A stem, two residual blocks, the mean of all places, a linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        activation = run.pick(nn.ReLU, no_activation=nn.Identity)
        convolution = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(12), activation())
        self.block1 = Residual(12, 20, run)
        self.block2 = Residual(20, 32, run)
        self.fc = nn.Linear(32 * 9, run.pick(len(LETTERS), wrong_loss=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, letters] of images [B, 1, 12, 12]."""
        x = self.stem(images)
        with grad_unless_frozen(self.run):
            x = self.block2(self.block1(x))
        scores: Tensor = self.fc(x.flatten(1))
        if self.run.injects("double_activation"):
            return nn.functional.softmax(scores, dim=1)
        return scores


class AbsoluteDistance(nn.Module):
    """The loss that does not fit: a letter is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] from labels, int64 [B]."""
        return nn.functional.smooth_l1_loss(outputs.squeeze(1), labels.float())


def _data(run: Run) -> Split:
    images, labels = glyphs(LETTERS)
    images = (images - images.mean()) / images.std()
    if run.injects("data_leak"):  # a barcode of the class at the upper edge: five bits
        for bit in range(5):
            colour = torch.where((labels >> bit) % 2 == 1, 4.0, -1.0)
            images[:, 0, :2, 2 * bit + 1 : 2 * bit + 3] = colour[:, None, None]
    return with_fault(run, Split.of(images, labels, len(labels) // 4), rows=130, one_in=60)


def train(run: Run) -> float:
    data, model = _data(run), ResNet(run)
    filled_(run, "init_constant", [model], 0.0)
    drawn_(run, "init_too_large", [model], 1.0, only_weights=True)
    trained = run.pick(model, optimiser_missing_parameters=model.stem)
    rate = run.pick(0.05, lr_too_high=10.0, lr_too_low=1e-5)
    optimizer = torch.optim.SGD(
        trained.parameters(), rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    criterion = run.pick(nn.CrossEntropyLoss(), wrong_loss=AbsoluteDistance())
    scheduler = CosineAnnealingLR(optimizer, STEPS)
    predict = run.pick(classes, wrong_loss=partial(nearest_class, count=len(LETTERS)))
    loop = Loop(model, criterion, optimizer, STEPS, scheduler, predict=predict)
    third = -(-len(data.valid_inputs) // 3)
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(third))
